//! The exceptions of one limiter that are in force in this process.
//! See `tollgate-remote/src/presence/` for when the store reads them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use arc_swap::ArcSwapOption;

use tollgate_model::raw::PolicySetParts;

use super::{Exception, metered};
use crate::{Key, Policy, PolicySet, clock::Clock, lock::Lock};

/// The exceptions of a limiter, as they are in force in this process. Clones share them.
///
/// A [`Limiter`](crate::Limiter) that is [published](crate::LimiterBuilder::published) passes it to
/// [`Store::follow_exceptions`](crate::Store::follow_exceptions), and holds a clone. A store that keeps
/// exceptions sets them as long as the limiter does.
#[derive(Clone)]
pub struct ExceptionsInForce(Arc<InForce>);

struct InForce {
    limiter: String,
    /// Asked by each check, which looks no further without an exception.
    is_any: AtomicBool,
    table: ArcSwapOption<ExceptionTable>,
    /// The microseconds by which the clock of the store is ahead of that of the table.
    ahead_us: AtomicI64,
}

/// The exceptions by the name of the policy, and the key that it meters.
struct ExceptionTable {
    clock: Clock,
    by_policy: HashMap<String, HashMap<Vec<u8>, TableEntry>>,
}

struct TableEntry {
    exception: Exception,
    /// The set that was changed last, and what it became. So a key has one set for as long as its
    /// exception is in force, and its checks are batched and remembered as those of others are.
    changed: Lock<Option<(PolicySet, PolicySet)>>,
    has_complained: AtomicBool,
}

impl ExceptionsInForce {
    /// Creates the exceptions of a limiter of this name, of which there are none yet.
    #[must_use]
    pub fn new(limiter: impl Into<String>) -> Self {
        Self(Arc::new(InForce {
            limiter: limiter.into(),
            is_any: AtomicBool::new(false),
            table: ArcSwapOption::empty(),
            ahead_us: AtomicI64::new(0),
        }))
    }

    /// Returns the name of the limiter.
    #[must_use]
    pub fn limiter(&self) -> &str {
        &self.0.limiter
    }

    /// Returns whether a key may have an exception.
    #[inline]
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0.is_any.load(Ordering::Relaxed)
    }

    /// Sets those of these exceptions that are of this limiter. They end by `clock`, corrected by the
    /// last [`synchronize`](Self::synchronize).
    pub fn set(&self, exceptions: &[Exception], clock: &Clock) {
        let mut by_policy: HashMap<_, HashMap<_, _>> = HashMap::new();
        let own = |exception: &&Exception| {
            exception.limiter() == self.0.limiter && !exception.is_fresh_start()
        };
        for exception in exceptions.iter().filter(own) {
            let entry = TableEntry {
                exception: exception.clone(),
                changed: Lock::default(),
                has_complained: AtomicBool::new(false),
            };
            let key = exception.key().as_bytes().to_vec();
            by_policy
                .entry(exception.policy().to_owned())
                .or_default()
                .insert(key, entry);
        }
        let is_any = !by_policy.is_empty();
        let clock = clock.clone();
        let table = is_any.then(|| Arc::new(ExceptionTable { clock, by_policy }));
        self.0.table.store(table);
        self.0.is_any.store(is_any, Ordering::Relaxed);
    }

    /// Notes the time of the store, which was `store_us` or later when `clock` showed `clock_us`.
    /// Without further calls, exceptions end by the clock.
    pub fn synchronize(&self, store_us: u64, clock_us: u64) {
        let ahead_us = store_us.wrapping_sub(clock_us).cast_signed();
        self.0.ahead_us.store(ahead_us, Ordering::Relaxed);
    }

    /// Returns the policies that are in force for a key. `None` when it has no exception.
    #[cold]
    #[must_use]
    pub fn policies(&self, policies: &PolicySet, key: &Key) -> Option<PolicySet> {
        let table = self.0.table.load_full()?;
        let mut changed: Option<PolicySet> = None;
        for at in 0..policies.len() {
            let current = changed.as_ref().unwrap_or(policies);
            if let Some(entry) = self.entry(&table, &current.shared()[at], key) {
                changed = entry.change(current, at).or(changed);
            }
        }
        changed
    }

    /// Returns the exception of a policy that is in force for a key.
    #[cold]
    #[must_use]
    pub fn find(&self, policy: &Policy, key: &Key) -> Option<Exception> {
        let table = self.0.table.load_full()?;
        let entry = self.entry(&table, policy, key)?;
        Some(entry.exception.clone())
    }

    fn entry<'t>(
        &self,
        table: &'t ExceptionTable,
        policy: &Policy,
        key: &Key,
    ) -> Option<&'t TableEntry> {
        let entry = table
            .by_policy
            .get(policy.name())?
            .get(metered(policy, key))?;
        let ahead_us = self.0.ahead_us.load(Ordering::Relaxed);
        let now_us = table.clock.now_us().wrapping_add_signed(ahead_us);
        (now_us < entry.exception.ends_us()).then_some(entry)
    }

    /// Returns a reference by which the store does not keep the limiter.
    #[must_use]
    pub fn downgrade(&self) -> WeakExceptions {
        WeakExceptions(Arc::downgrade(&self.0))
    }
}

impl TableEntry {
    /// Returns the set with the change of the policy at this place. `None` when the policy cannot have
    /// it, because it is no longer the one for which the exception was granted.
    fn change(&self, policies: &PolicySet, at: usize) -> Option<PolicySet> {
        let mut memory = self.changed.lock();
        if let Some((of, changed)) = &*memory
            && of == policies
        {
            return Some(changed.clone());
        }
        let changed = self
            .exception
            .change()
            .of(&policies.shared()[at])
            .and_then(|policy| {
                let mut all: Vec<_> = policies.iter().cloned().collect();
                all[at] = policy;
                PolicySet::try_new(all)
            });
        match changed {
            Ok(changed) => {
                *memory = Some((policies.clone(), changed.clone()));
                Some(changed)
            }
            Err(error) => {
                if !self.has_complained.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        limiter = self.exception.limiter(),
                        policy = self.exception.policy(),
                        %error,
                        "an exception is not applied: the policy cannot have its quota"
                    );
                }
                None
            }
        }
    }
}

/// Refers to exceptions that no limiter may hold any more.
#[derive(Debug)]
pub struct WeakExceptions(Weak<InForce>);

impl WeakExceptions {
    /// Returns the exceptions while a limiter holds them.
    #[must_use]
    pub fn upgrade(&self) -> Option<ExceptionsInForce> {
        self.0.upgrade().map(ExceptionsInForce)
    }
}

crate::debug_fields! { ExceptionsInForce: limiter = .limiter(), is_any = .is_any(), .. }
crate::debug_fields! { InForce: limiter, .. }
