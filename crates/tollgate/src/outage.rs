use std::{
    num::NonZeroU32,
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
                Some((MemoryStore::builder().clock(Clock::monotonic()).build(), policies.share(replicas.get())))
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
