//! Shares what the layers around one service know of each other: the keys that outer layers have
//! charged, and the longest wait for one of them.
//! Headers of several layers are combined in `headers/stack.rs`.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use http::{Extensions, request::Parts};
use tollgate_core::{Decision, Key, Policy, PolicySet};

/// Inspects the first requests of a layer. Two layers that count one request twice do so for every
/// request.
#[derive(Debug, Default)]
pub(crate) struct DoubleCountDetector {
    inspected: AtomicU32,
    has_logged: AtomicBool,
    has_logged_name: AtomicBool,
}

/// Limits the inspection to this many requests, because the extension that it needs is an
/// allocation.
const MAX_INSPECTED: u32 = 1024;

/// Lists the keys and policies that outer layers have charged for a request.
#[derive(Clone)]
struct ChargedKeys(Vec<(Key, PolicySet)>);

impl DoubleCountDetector {
    /// Logs an error, once, when an outer layer has charged one of these policies for the same key,
    /// and a warning when it has charged a policy of the same name for another key. Returns whether
    /// the request is the first of the layer.
    pub(crate) fn inspect(&self, parts: &mut Parts, key: &Key, policies: &PolicySet) -> bool {
        if self.inspected.load(Ordering::Relaxed) >= MAX_INSPECTED {
            return false;
        }
        let inspected = self.inspected.fetch_add(1, Ordering::Relaxed);
        let mut charged = parts
            .extensions
            .remove::<ChargedKeys>()
            .unwrap_or(ChargedKeys(Vec::new()));
        let shared_name = |is_same_key: bool| {
            charged.0.iter().find_map(|(other, outer)| {
                let is_shared = |policy: &&Policy| {
                    let mut of_name = outer.iter().filter(|outer| outer.name() == policy.name());
                    of_name.any(|outer| {
                        (branch_of(outer, other) == branch_of(policy, key)) == is_same_key
                    })
                };
                policies.iter().find(is_shared).map(Policy::name)
            })
        };
        if let Some(policy) = shared_name(true)
            && !self.has_logged.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                code = "TOLLGATE-DOUBLE-COUNT",
                policy,
                "two rate limit layers around one route charge the same policy and key: each request counts twice"
            );
        }
        if let Some(policy) = shared_name(false)
            && !self.has_logged_name.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                code = "TOLLGATE-SAME-NAME",
                policy,
                "two rate limit layers around one route charge policies of one name for different keys: the headers show the \
                 stricter of the two alone, so give them different names"
            );
        }
        charged.0.push((key.clone(), policies.clone()));
        parts.extensions.insert(charged);
        inspected == 0
    }
}

/// Returns the branch of a key that a policy meters.
fn branch_of<'a>(policy: &Policy, key: &'a Key) -> Option<&'a Key> {
    key.branches().get(usize::from(policy.branch()) - 1)
}

/// Stores the longest wait of the layers that have admitted a request and have no unit left. It is
/// an extension of the request. A layer further inside that denies the request reports this wait to
/// the client where it is the longest.
#[derive(Clone)]
pub(crate) struct OuterWait {
    wait: Duration,
    policies: PolicySet,
    /// The index of the policy that the client waits for.
    index: usize,
}

impl OuterWait {
    /// Returns the wait that the outer layers have stored.
    pub(crate) fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// Stores the wait for the spent policies of an admitted request, unless it is shorter than the
    /// stored one.
    #[cold]
    pub(crate) fn store(decision: &Decision, jitter: Duration, extensions: &mut Extensions) {
        let spent = decision
            .states()
            .enumerate()
            .filter(|(_, state)| state.remaining() == 0);
        let Some((index, state)) = spent.max_by_key(|(_, state)| state.next_unit_after()) else {
            return;
        };
        let wait = state.next_unit_after().saturating_add(jitter);
        if Self::of(extensions).is_none_or(|outer| outer.wait < wait) {
            extensions.insert(Self {
                wait,
                policies: decision.policies().clone(),
                index,
            });
        }
    }

    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Returns the name of the policy that the client waits for, unless it is hidden.
    pub(crate) fn policy(&self) -> Option<&str> {
        let policy = self.policies.iter().nth(self.index)?;
        (!policy.is_hidden()).then(|| policy.name())
    }
}
