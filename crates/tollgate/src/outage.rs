use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{Check, Clock, Decision, Error, ErrorKind, MemoryStore, PolicySet};

/// What to answer when the store cannot decide in time.
///
/// An outage is not a denial: nobody is told to have sent too much because Redis is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outage {
    /// Everybody passes. For limits that shape traffic.
    Open,
    /// No decision: the check is an [`Error`], the middleware answers 503. For limits that protect,
    /// a log-in for example.
    Closed,
    /// Each replica enforces its share of the quota by itself: amount and burst are divided by the
    /// number of replicas, each at least 1. The default, with one replica.
    ///
    /// What an outage may take in memory is bounded for each limiter: 114 688 states (one for each key and policy) in 8.5 MB
    /// of tables, and 80 bytes more for a key of over 30 bytes; 18 MB at most. The entries of a log and the slices of
    /// sliding buckets come on top. When it is full the states nearest to fresh go first, as in [`MemoryStore`]: a key
    /// that has spent its share stays refused while there are others that have spent less of theirs.
    Local {
        /// How many replicas share the quota.
        replicas: NonZeroU32,
    },
}

impl Default for Outage {
    fn default() -> Self {
        Self::Local { replicas: NonZeroU32::MIN }
    }
}

/// How many states an outage may leave in the process: 64 tables of 2 048 places, each as full as it gets before it would
/// double.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(64 * 2_048 / 8 * 7).expect("not zero");

/// Answers for a store that cannot, and tells once when that begins and ends.
#[derive(Debug)]
pub(crate) struct Fallback {
    outage: Outage,
    local: Option<(MemoryStore, PolicySet)>,
    away: AtomicBool,
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
        Self { outage, local, away: AtomicBool::new(false) }
    }

    /// The store decided.
    pub(crate) fn returned(&self) {
        if self.away.load(Ordering::Relaxed) && self.away.swap(false, Ordering::Relaxed) {
            tracing::info!("the store of the rate limiter decides again");
        }
    }

    /// The store did not decide, for the reason given.
    pub(crate) fn answer(&self, check: Check<'_>, error: Error) -> Result<Decision, Error> {
        if matches!(error.kind(), ErrorKind::CostExceedsBurst | ErrorKind::Unsupported) {
            return Err(error);
        }
        let why = error.cause();
        if !self.away.swap(true, Ordering::Relaxed) {
            tracing::warn!(reason = why.as_str(), %error, outage = ?self.outage, "rate limits are decided without the store");
        }
        match (&self.outage, &self.local) {
            (Outage::Closed, _) => Err(error),
            (Outage::Local { .. }, Some((store, policies))) => {
                // A share may be too small for a cost that the whole quota can hold: it is then
                // spent whole.
                let cost = check.cost.min(policies.most());
                let decision = store.decide(Check { policies, cost, ..check });
                Ok(decision.degraded_by(why))
            }
            _ => Ok(Decision::open(check.policies, check.cost, why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Key, Policy, Quota, reason::Reason};

    #[test]
    fn a_flood_of_keys_in_an_outage_is_bounded_and_resets_no_key_that_has_spent_its_share() {
        let policies: PolicySet = Policy::token_bucket("day", Quota::per_day(10)).into();
        let fallback = Fallback::new(Outage::default(), &policies);
        let (store, _) = fallback.local.as_ref().expect("a local share");
        let is_allowed = |key: Key| {
            let check = Check::new(&policies, &key, Cost::ONE);
            let away = Error::new(Reason::Breaker, "away");
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
