use std::{borrow::Cow, num::NonZeroU32, time::Instant};

use super::{Outage, phase::Phase, replicas::Replicas, share::LocalShare};
use crate::{Check, Deadline, Decision, Error, ErrorKind, PolicySet, Store};

/// Answers for a store that failed, and logs the begin and the end of an outage once each.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// The name of the limiter.
    name: Cow<'static, str>,
    outage: Outage,
    local: Option<LocalShare>,
    phase: Phase,
}

impl Fallback {
    pub(crate) fn new(name: Cow<'static, str>, outage: Outage, policies: &PolicySet, store: &dyn Store) -> Self {
        let local = match outage {
            Outage::Local { replicas: Replicas::Fixed(replicas) } => Some(LocalShare::new(policies, replicas, None)),
            Outage::Local { replicas: Replicas::Counted } => {
                Some(LocalShare::new(policies, NonZeroU32::MIN, store.replicas()))
            }
            Outage::Open | Outage::Closed => None,
        };
        Self { name, outage, local, phase: Phase::new(now()) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Notes a decision of the store, and logs the end of an outage. `check` is the check that was decided.
    ///
    /// A remembered denial is no sign of the store.
    #[inline]
    pub(crate) fn decided<'a>(&self, decision: &Decision, check: impl FnOnce() -> Check<'a>) {
        if self.phase.is_away() && !decision.is_remembered() {
            self.decided_in_outage(check());
        }
    }

    #[cold]
    fn decided_in_outage(&self, check: Check<'_>) {
        if let Some(lasted) = self.phase.decided(start(check)) {
            tracing::info!(limiter = &*self.name, ?lasted, "the rate limit store decides again");
        }
    }

    /// Answers for the store, which failed with `error`.
    pub(crate) fn answer(&self, check: Check<'_>, error: Error) -> Result<Decision, Error> {
        let kind = error.kind();
        if matches!(kind, ErrorKind::CostExceedsBurst | ErrorKind::Unsupported) {
            return Err(error);
        }
        if self.phase.failed(start(check)) {
            tracing::warn!(
                limiter = &*self.name,
                reason = kind.as_str(),
                %error,
                outage = ?self.outage,
                replicas = self.local.as_ref().map(|local| local.replicas().get()),
                "rate limits are decided without the store: it failed"
            );
        }
        match (&self.outage, &self.local) {
            (Outage::Closed, _) => Err(error),
            (Outage::Local { .. }, Some(local)) => Ok(local.decide(check).degraded_by(kind)),
            _ => Ok(Decision::open(check.policies, check.cost, kind)),
        }
    }
}

/// Returns when a check began.
fn start(check: Check<'_>) -> Instant {
    check.deadline.map_or_else(now, Deadline::start)
}

/// Returns tokio's time, as the start of a deadline does.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Key, MemoryStore, Policy, Quota, outage::share::MAX_KEYS};

    #[test]
    fn a_flood_of_keys_in_an_outage_is_bounded_and_resets_no_key_that_has_spent_its_share() {
        let policies: PolicySet = Policy::token_bucket("day", Quota::per_day(10)).into();
        let fallback = Fallback::new("day".into(), Outage::default(), &policies, &MemoryStore::new());
        let store = &fallback.local.as_ref().expect("a local share").store;
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
