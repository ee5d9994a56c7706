use std::{
    borrow::Cow,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use super::{Outage, Replicas, phase::Phase, share::LocalShare};
use crate::{
    Decision, Error, ErrorKind, Key, PolicySet, Store,
    clock::Clock,
    limiter::{DeniedKeys, metrics::LimiterMetrics},
    runtime::now,
    store::{Check, Deadline, ReplicaGroup, ReservationId, Settlement},
};

/// Answers for a store that failed. Logs the begin and the end of an outage once each, and those of an overload.
/// Counts all checks, and denials by key if that was asked for.
///
/// An overload is not an outage: the store answers as many checks as it can.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// The name of the limiter.
    name: Cow<'static, str>,
    outage: Outage,
    local: Option<LocalShare>,
    outage_phase: Phase,
    overload_phase: Phase,
    metrics: LimiterMetrics,
    denied_keys: Option<DeniedKeys>,
}

impl Fallback {
    pub(crate) fn new(
        name: Cow<'static, str>,
        group: ReplicaGroup,
        outage: Outage,
        store: &dyn Store,
        denied_keys: Option<DeniedKeys>,
        clock: Option<Clock>,
    ) -> Self {
        let local = match outage {
            Outage::Local { replicas: Replicas::Fixed(replicas) } => Some(LocalShare::new(replicas, None, clock)),
            Outage::Local { replicas: Replicas::Counted } => {
                Some(LocalShare::new(NonZeroU32::MIN, store.replicas(group), clock))
            }
            Outage::Open | Outage::Closed => None,
        };
        let (outage_phase, overload_phase) = (Phase::new(now()), Phase::new(now()));
        Self { name, outage, local, outage_phase, overload_phase, metrics: LimiterMetrics::default(), denied_keys }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Counts the answer of a store in the process.
    #[inline]
    pub(crate) fn answered_in_process(
        &self,
        policies: &PolicySet,
        key: &Key,
        answer: Option<Result<&Decision, &Error>>,
    ) {
        if let (Some(denied_keys), Some(Ok(decision))) = (&self.denied_keys, answer) {
            denied_keys.record_decision(key, decision);
        }
        match answer {
            Some(Ok(decision)) => self.metrics.record_in_process(&self.name, decision),
            Some(Err(error)) => self.metrics.record_error(&self.name, policies, error),
            None => {}
        }
    }

    /// Counts a check that was refused before the store was called.
    pub(crate) fn refused(&self, policies: &PolicySet, error: &Error) {
        self.metrics.record_error(&self.name, policies, error);
    }

    /// Records a decision of the store, and logs the end of an outage. `check` is the check that was decided.
    ///
    /// A remembered denial and leased units are no sign of the store.
    #[inline]
    pub(crate) fn decided<'a>(&self, decision: &Decision, check: impl FnOnce() -> Check<'a>) {
        let is_away = self.outage_phase.is_away() || self.overload_phase.is_away();
        let may_end = is_away && !decision.is_in_process();
        if may_end || LimiterMetrics::IS_ON || self.denied_keys.is_some() {
            let check = check();
            self.record_denial(check, decision);
            self.metrics.record_decision(&self.name, decision, check.deadline);
            if may_end {
                self.decided_while_away(start(check));
            }
        }
    }

    fn record_denial(&self, check: Check<'_>, decision: &Decision) {
        if let Some(denied_keys) = &self.denied_keys {
            denied_keys.record_decision(check.key, decision);
        }
    }

    #[cold]
    fn decided_while_away(&self, start: Instant) {
        if let Some(lasted) = self.outage_phase.decided(start) {
            self.metrics.outage_ended(&self.name);
            tracing::info!(limiter = &*self.name, ?lasted, "the rate limit store decides again");
        }
        if let Some(lasted) = self.overload_phase.decided(start) {
            tracing::info!(limiter = &*self.name, ?lasted, "the rate limit store decides all checks again");
        }
    }

    /// Answers for the store, which failed with `error`.
    pub(crate) fn answer(&self, check: Check<'_>, error: Error) -> Result<Decision, Error> {
        self.answer_by(check, error, |local| local.decide(check))
    }

    /// Returns what a check would decide, after the store failed with `error`. No look is counted.
    pub(crate) fn look(&self, check: Check<'_>, error: Error) -> Result<Decision, Error> {
        self.decide(check, error, |local| local.look(check))
    }

    /// Reserves for the store, which failed with `error`.
    pub(crate) fn reserve(
        &self,
        check: Check<'_>,
        id: &ReservationId,
        time_to_live: Duration,
        error: Error,
    ) -> Result<Decision, Error> {
        self.answer_by(check, error, |local| local.reserve(check, id, time_to_live))
    }

    /// Settles a reservation that this process made in an outage. `None` when the process makes none.
    pub(crate) fn commit(&self, check: Check<'_>, id: &ReservationId) -> Option<Settlement> {
        self.local.as_ref().map(|local| local.commit(check, id))
    }

    /// Settles a reservation that this process made in an outage. The policies of `check` are the share of the process.
    pub(crate) fn commit_own(&self, check: Check<'_>, id: &ReservationId) -> Option<Settlement> {
        let settlement = self.local.as_ref().map(|local| local.store().commit_now(check, id, 1));
        self.committed(settlement.as_ref());
        settlement
    }

    /// Counts a commit. `None` is a commit that failed.
    pub(crate) fn committed(&self, settlement: Option<&Settlement>) {
        self.metrics.record_commit(&self.name, settlement.copied());
    }

    fn answer_by(
        &self,
        check: Check<'_>,
        error: Error,
        local: impl FnOnce(&LocalShare) -> Decision,
    ) -> Result<Decision, Error> {
        let answer = self.decide(check, error, local);
        match &answer {
            Ok(decision) => {
                self.metrics.record_decision(&self.name, decision, check.deadline);
                self.record_denial(check, decision);
            }
            Err(error) => self.metrics.record_error(&self.name, check.policies, error),
        }
        answer
    }

    fn decide(
        &self,
        check: Check<'_>,
        error: Error,
        by_share: impl FnOnce(&LocalShare) -> Decision,
    ) -> Result<Decision, Error> {
        let kind = error.kind();
        let is_of_caller = matches!(
            kind,
            ErrorKind::CostExceedsBurst
                | ErrorKind::KeyLevels
                | ErrorKind::CrossSlot
                | ErrorKind::Unsupported
                | ErrorKind::NoRuntime
        );
        if is_of_caller {
            return Err(error);
        }
        self.note_failure(&error, check.deadline);
        match (&self.outage, &self.local) {
            (Outage::Closed, _) => Err(error),
            (Outage::Local { .. }, Some(local)) => Ok(by_share(local).degraded_by(kind)),
            _ => Ok(Decision::open(check.policies, check.charge(), kind)),
        }
    }

    /// Logs the begin of an outage or of an overload. `deadline` is that of the failed call.
    fn note_failure(&self, error: &Error, deadline: Option<Deadline>) {
        let (kind, start) = (error.kind(), start_of(deadline));
        if kind == ErrorKind::Overloaded {
            if self.overload_phase.failed(start) {
                tracing::warn!(
                    limiter = &*self.name,
                    reason = kind.as_str(),
                    %error,
                    deadline = deadline.map(|deadline| debug(deadline.timeout())),
                    left = deadline.map(|deadline| debug(deadline.left())),
                    outage = ?self.outage,
                    "some rate limits are decided without the store: it receives more checks than it can answer in time"
                );
            }
        } else if self.outage_phase.failed(start) {
            self.metrics.outage_began(&self.name);
            tracing::warn!(
                limiter = &*self.name,
                reason = kind.as_str(),
                %error,
                outage = ?self.outage,
                replicas = self.local.as_ref().map(|local| local.replicas().get()),
                "rate limits are decided without the store: it failed"
            );
        }
    }

    /// Answers for a store that did not grant permits: the number of replicas that share the limit, or `None` when no
    /// limit applies. Fails when the caller has to get the error.
    pub(crate) fn permits_failed(&self, error: Error, deadline: Deadline) -> Result<Option<u32>, Error> {
        if matches!(error.kind(), ErrorKind::Config | ErrorKind::Unsupported | ErrorKind::NoRuntime) {
            return Err(error);
        }
        self.note_failure(&error, Some(deadline));
        match (&self.outage, &self.local) {
            (Outage::Closed, _) => Err(error),
            (_, local) => Ok(local.as_ref().map(|local| local.replicas().get())),
        }
    }

    /// Records an answer of the store to another call than a check. The call began at `start`.
    pub(crate) fn answered(&self, start: Instant) {
        if self.outage_phase.is_away() || self.overload_phase.is_away() {
            self.decided_while_away(start);
        }
    }
}

/// Returns when a check began.
fn start(check: Check<'_>) -> Instant {
    start_of(check.deadline)
}

/// Returns when a call with this deadline began.
fn start_of(deadline: Option<Deadline>) -> Instant {
    deadline.map_or_else(now, Deadline::start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Key, MemoryStore, Policy, Quota, limiter::outage::share::MAX_KEYS};

    #[test]
    fn an_outage_limits_the_outer_levels_of_keys_by_their_share() {
        let policies = PolicySet::from([
            Policy::token_bucket("outer", Quota::per_day(10)).at_level(1),
            Policy::token_bucket("inner", Quota::per_day(4)),
        ]);
        let fallback = Fallback::new(
            "levels".into(),
            ReplicaGroup::new("levels", &policies),
            Outage::local(2),
            &MemoryStore::new(),
            None,
            None,
        );
        let store = fallback.local.as_ref().expect("a local share").store();
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
        let fallback = Fallback::new(
            "day".into(),
            ReplicaGroup::new("day", &policies),
            Outage::default(),
            &MemoryStore::new(),
            None,
            None,
        );
        let store = fallback.local.as_ref().expect("a local share").store();
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
