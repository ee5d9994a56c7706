use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{Check, Clock, Decision, Error, ErrorKind, MemoryStore, PolicySet};

/// Selects the answer to a check that the store cannot decide in time.
///
/// An outage is not a denial: a client is never told that it sent too much because Redis is away.
///
/// What is decided here is not reported to the store later. After the outage, the store has the state from before it: a key
/// may spend its share and then what the store has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Allows every request. For limits that shape traffic.
    Open,
    /// Fails every check with an [`Error`]. The middleware answers 503. For limits that protect something, a log-in for
    /// example.
    Closed,
    /// Decides in this process, on this replica's share of the quota. The default, with one replica.
    ///
    /// Amount and burst are divided by the number of replicas; each share is at least 1. Set the number with
    /// [`Outage::local`]: with the default of 1, each replica allows the whole quota during an outage.
    ///
    /// The memory of each limiter in an outage is bounded: 114 688 states (one for each key and policy), 8.5 MB of
    /// tables and 80 bytes more for each key of over 30 bytes, 18 MB at most. A [nested](crate::Key::child) key has up to
    /// 64 bytes for each level, 40 MB at most with four levels. The entries of logs and the slices of
    /// sliding buckets are added to this. A full table drops the states that are nearest to fresh, as in [`MemoryStore`].
    /// A key that has spent its share stays denied while other keys have spent less of theirs.
    Local {
        /// The number of replicas that share the quota.
        replicas: NonZeroU32,
    },
}

impl Outage {
    /// Returns [`Outage::Local`] for this number of replicas.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Outage, Policy, Quota};
    ///
    /// const THREE_REPLICAS: Outage = Outage::local(3);
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .policies(Policy::token_bucket("api", Quota::per_second(30)))
    ///     .on_outage(THREE_REPLICAS)
    ///     .build();
    /// assert_eq!(limiter.policies().len(), 1);
    /// ```
    ///
    /// # Panics
    ///
    /// When `replicas` is 0. As a constant, this fails the build.
    #[must_use]
    pub const fn local(replicas: u32) -> Self {
        match NonZeroU32::new(replicas) {
            Some(replicas) => Self::Local { replicas },
            None => panic!("replicas must be at least 1, got 0"),
        }
    }
}

impl Default for Outage {
    fn default() -> Self {
        Self::Local { replicas: NonZeroU32::MIN }
    }
}

/// The most states that an outage keeps in the process: 64 tables of 2 048 places, each filled to the point at which it
/// would double.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(64 * 2_048 / 8 * 7).expect("not zero");

/// Answers for a store that failed, and logs the begin and the end of an outage once each.
#[derive(Debug)]
pub(crate) struct Fallback {
    outage: Outage,
    local: Option<(MemoryStore, PolicySet)>,
    is_away: AtomicBool,
}

impl Fallback {
    pub(crate) fn new(outage: Outage, policies: &PolicySet) -> Self {
        let local = match outage {
            Outage::Local { replicas } => {
                let store = MemoryStore::builder().max_keys(MAX_KEYS).clock(Clock::monotonic()).build();
                Some((store, policies.share(replicas.get())))
            }
            Outage::Open | Outage::Closed => None,
        };
        Self { outage, local, is_away: AtomicBool::new(false) }
    }

    /// Notes that the store decided, and logs the end of an outage.
    pub(crate) fn store_decided(&self) {
        if self.is_away.load(Ordering::Relaxed) && self.is_away.swap(false, Ordering::Relaxed) {
            tracing::info!("the rate limit store decides again");
        }
    }

    /// Answers for the store, which failed with `error`.
    pub(crate) fn answer(&self, check: Check<'_>, error: Error) -> Result<Decision, Error> {
        let kind = error.kind();
        let is_of_caller = matches!(
            kind,
            ErrorKind::CostExceedsBurst | ErrorKind::KeyLevels | ErrorKind::Unsupported | ErrorKind::NoRuntime
        );
        if is_of_caller {
            return Err(error);
        }
        if !self.is_away.swap(true, Ordering::Relaxed) {
            tracing::warn!(reason = kind.as_str(), %error, outage = ?self.outage, "rate limits are decided without the store: it failed");
        }
        match (&self.outage, &self.local) {
            (Outage::Closed, _) => Err(error),
            (Outage::Local { .. }, Some((store, policies))) => {
                // A share may be smaller than a cost that fits the whole quota. Such a cost spends the whole share.
                let cost = check.cost.min(policies.most());
                let decision = store.decide(Check { policies, cost, ..check });
                Ok(decision.degraded_by(kind))
            }
            _ => Ok(Decision::open(check.policies, check.cost, kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Key, Policy, Quota};

    #[test]
    fn an_outage_limits_the_outer_levels_of_keys_by_their_share() {
        let policies = PolicySet::from([
            Policy::token_bucket("outer", Quota::per_day(10)).at_level(1),
            Policy::token_bucket("inner", Quota::per_day(4)),
        ]);
        let fallback = Fallback::new(Outage::local(2), &policies);
        let (store, _) = fallback.local.as_ref().expect("a local share");
        let is_allowed = |inner: u64| {
            let key = Key::new("acme").child(inner);
            let away = Error::new(ErrorKind::CircuitOpen, "away");
            fallback.answer(Check::new(&policies, &key, Cost::ONE), away).expect("a decision").is_allowed()
        };
        assert_eq!((0..1_000).filter(|&inner| is_allowed(inner)).count(), 5);
        assert_eq!(store.len(), 1 + 5, "a denial by the outer level creates no inner state");
    }

    #[test]
    fn a_flood_of_keys_in_an_outage_is_bounded_and_resets_no_key_that_has_spent_its_share() {
        let policies: PolicySet = Policy::token_bucket("day", Quota::per_day(10)).into();
        let fallback = Fallback::new(Outage::default(), &policies);
        let (store, _) = fallback.local.as_ref().expect("a local share");
        let is_allowed = |key: Key| {
            let check = Check::new(&policies, &key, Cost::ONE);
            let away = Error::new(ErrorKind::CircuitOpen, "away");
            fallback.answer(check, away).expect("a decision").is_allowed()
        };
        while is_allowed(Key::new("spent")) {}
        for key in 0..3 * MAX_KEYS.get() as u64 {
            assert!(is_allowed(key.into()), "{key}");
        }
        assert!((MAX_KEYS.get() / 8 * 7..=MAX_KEYS.get()).contains(&store.len()), "{} states", store.len());
        assert!(!is_allowed(Key::new("spent")));
    }
}
