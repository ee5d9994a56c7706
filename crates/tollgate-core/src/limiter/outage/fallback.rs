//! Answers where the store did not, and finds out when an outage begins and ends. It also counts
//! all answers.
//! The share of this replica is computed in `mod.rs`. The breaker, which spares a sick server, is
//! in `tollgate-remote/src/health/`.

use std::{
    borrow::Cow,
    future::Future,
    num::NonZeroU32,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tollgate_model::{PolicyState, raw::DecisionParts};

use super::{LocalShare, Outage, Replicas};
use crate::{
    Cost, Decision, Error, ErrorKind, Key, MemoryStore, Store,
    clock::{Clock, micros},
    limiter::{
        LimiterInner,
        events::{Event, Watch},
        metrics::LimiterMetrics,
    },
    runtime::{Background, Running, now},
    store::{Check, Deadline, ReplicaGroup, ReservationId, Settlement, check::CheckParts},
};

/// Answers for a store that failed. Logs the begin and the end of an outage or an overload once
/// each. Counts all checks, and shows them to the watch if there is one.
///
/// An overload is not an outage: the store answers as many checks as it can.
pub(crate) struct Fallback {
    /// The name of the limiter.
    name: Cow<'static, str>,
    outage: Outage,
    local: Option<LocalShare>,
    outage_phase: OutagePeriod,
    overload_phase: OutagePeriod,
    metrics: LimiterMetrics,
    watch: Option<Watch>,
    /// The limiter that this answers for.
    limiter: Weak<LimiterInner>,
    /// Asks the store during an outage.
    follower: Background,
}

/// The duty of the follower in an outage.
const FOLLOW: u32 = 1;

impl Fallback {
    pub(crate) fn new(
        limiter: Weak<LimiterInner>,
        name: Cow<'static, str>,
        group: ReplicaGroup,
        outage: Outage,
        store: &dyn Store,
        watch: Option<Watch>,
        clock: Option<Clock>,
    ) -> Self {
        let local = match outage {
            Outage::Local {
                replicas: Replicas::Fixed(replicas),
            } => Some(LocalShare::new(replicas, None, clock)),
            Outage::Local {
                replicas: Replicas::Counted,
            } => Some(LocalShare::new(
                NonZeroU32::MIN,
                store.replicas(group),
                clock,
            )),
            Outage::Open | Outage::Closed => None,
        };
        let (outage_phase, overload_phase) = (OutagePeriod::new(now()), OutagePeriod::new(now()));
        let (metrics, follower) = (LimiterMetrics::default(), Background::new());
        Self {
            name,
            outage,
            local,
            outage_phase,
            overload_phase,
            metrics,
            watch,
            limiter,
            follower,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether anybody counts the answers of the store.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        LimiterMetrics::IS_ON || self.watch.is_some()
    }

    /// Notes the answer to a check: counts it, shows it to the watch, and logs the end of an outage.
    #[inline]
    pub(crate) fn answered(&self, check: Check<'_>, answer: Result<&Decision, &Error>) {
        match answer {
            Ok(decision) => {
                if self.counts() {
                    if let Some(watch) = &self.watch {
                        watch.decided(&self.name, check.key, decision);
                    }
                    self.metrics
                        .record_decision(&self.name, decision, check.deadline);
                }
                self.heard(check, decision);
            }
            Err(error) => self.metrics.record_error(&self.name, check.policies, error),
        }
    }

    /// Counts and shows that a policy decided by the quota of an exception.
    pub(crate) fn used_exception(&self, key: &Key, decision: &Decision, state: &PolicyState<'_>) {
        self.metrics
            .record_exception(&self.name, state.policy().name());
        if let Some(watch) = &self.watch {
            watch.used_exception(&self.name, key, decision, state);
        }
    }

    /// Notes that a decision came, which may be the end of an outage. What was decided in the
    /// process, and without a deadline, is no sign of the store.
    #[inline]
    pub(crate) fn heard(&self, check: Check<'_>, decision: &Decision) {
        if let Some(deadline) = check.deadline
            && !decision.is_in_process()
            && decision.degraded().is_none()
        {
            self.heard_since(deadline.start());
        }
    }

    /// Notes that the store answered a call that began at `start`.
    #[inline]
    pub(crate) fn heard_since(&self, start: Instant) {
        if self.outage_phase.is_away() || self.overload_phase.is_away() {
            self.decided_while_away(start);
        }
    }

    fn show(&self, event: &Event<'_>) {
        if let Some(watch) = &self.watch {
            watch.show(event);
        }
    }

    #[cold]
    fn decided_while_away(&self, start: Instant) {
        if let Some(lasted) = self.outage_phase.decided(start) {
            self.metrics.outage_ended(&self.name);
            tracing::info!(name: "outage_ended", limiter = &*self.name, ?lasted, "the rate limit store decides again");
            self.show(&Event::OutageEnded {
                limiter: (&*self.name).into(),
                lasted,
            });
        }
        if let Some(lasted) = self.overload_phase.decided(start) {
            tracing::info!(
                limiter = &*self.name,
                ?lasted,
                "the rate limit store decides all checks again"
            );
        }
    }

    /// Settles a reservation that this process made in an outage. `None` when the process makes
    /// none.
    pub(crate) fn commit(&self, check: Check<'_>, id: &ReservationId) -> Option<Settlement> {
        self.local.as_ref().map(|local| local.commit(check, id))
    }

    /// Settles a reservation that this process made in an outage. The policies of `check` are the
    /// share of the process.
    pub(crate) fn commit_own(&self, check: Check<'_>, id: &ReservationId) -> Option<Settlement> {
        let settlement = self
            .local
            .as_ref()
            .map(|local| local.store().commit_now(check, id, check.number()));
        self.committed(settlement.as_ref());
        settlement
    }

    /// Returns the units of a decision that this process made in an outage to its share. `check`
    /// has the policies of the decision.
    pub(crate) fn refund(&self, check: Check<'_>, decision: &Decision) {
        if let Some(local) = &self.local {
            local
                .store()
                .refund_at(check, Some(decision.at_us()), Some(decision));
        }
    }

    /// Counts a commit. `None` is a commit that failed.
    pub(crate) fn committed(&self, settlement: Option<&Settlement>) {
        self.metrics.record_commit(&self.name, settlement.copied());
    }

    /// Answers for the store, which failed with `error`: by its share with `by_share`, by admission,
    /// or with the error.
    pub(crate) fn decide(
        &self,
        check: Check<'_>,
        error: Error,
        by_share: impl FnOnce(&MemoryStore, Check<'_>) -> Decision,
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
        self.follow(|| {
            let (policies, key) = (check.policies.clone(), check.key.clone());
            move |limiter: Arc<LimiterInner>| {
                let look = limiter.look(&policies, &key, Cost::ZERO.into());
                async move { drop(look.await) }
            }
        });
        match (&self.outage, &self.local) {
            (Outage::Closed, _) => Err(error),
            (Outage::Local { .. }, Some(local)) => Ok(local.ask(check, by_share).degraded_by(kind)),
            _ => Ok(Decision::open(check.policies, check.charge(), kind)),
        }
    }

    /// Logs the begin of an outage or of an overload. `deadline` belongs to the failed call.
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
                name: "outage_began",
                limiter = &*self.name,
                reason = kind.as_str(),
                %error,
                outage = ?self.outage,
                replicas = self.local.as_ref().map(|local| local.replicas().get()),
                "rate limits are decided without the store: it failed"
            );
            self.show(&Event::OutageBegan {
                limiter: (&*self.name).into(),
                reason: kind,
            });
        }
    }

    /// Asks the store once a second while the outage lasts, by the call that `ask` makes, so that
    /// its end shows without a further check. A limiter that is rarely used would report an outage
    /// of a healthy store otherwise.
    fn follow<A, F>(&self, ask: impl FnOnce() -> A)
    where
        A: Fn(Arc<LimiterInner>) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        if self.outage_phase.is_away() && !self.follower.has(FOLLOW) {
            self.follower.ask(FOLLOW);
            // Without a runtime, a later check shows the end.
            self.follower
                .start(|running| follow(self.limiter.clone(), running, ask()));
        }
    }

    /// Answers for a store that did not grant permits: the number of replicas that share the limit,
    /// or `None` when no limit applies. Fails when the caller has to get the error. `ask` asks the
    /// store again.
    pub(crate) fn permits_failed<F>(
        &self,
        error: Error,
        deadline: Deadline,
        ask: impl Fn() -> F + Send + 'static,
    ) -> Result<Option<u32>, Error>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if matches!(
            error.kind(),
            ErrorKind::Config | ErrorKind::Unsupported | ErrorKind::NoRuntime
        ) {
            return Err(error);
        }
        self.note_failure(&error, Some(deadline));
        self.follow(|| move |_| ask());
        match (&self.outage, &self.local) {
            (Outage::Closed, _) => Err(error),
            (_, local) => Ok(local.as_ref().map(|local| local.replicas().get())),
        }
    }
}

/// Asks the store until the outage is over, or the limiter is gone.
async fn follow<A, F>(limiter: Weak<LimiterInner>, mut running: Running, ask: A)
where
    A: Fn(Arc<LimiterInner>) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        running.rest(tokio::time::Instant::now() + OVER_AFTER).await;
        let Some(limiter) = limiter.upgrade() else {
            return;
        };
        let is_away = || limiter.fallback.outage_phase.is_away();
        if is_away() {
            ask(Arc::clone(&limiter)).await;
        }
        if !running.finish(FOLLOW, is_away) && running.end() {
            return;
        }
    }
}

fn start_of(deadline: Option<Deadline>) -> Instant {
    deadline.map_or_else(now, Deadline::start)
}

/// Finds the begin and the end of an outage.
///
/// Checks are answered out of order, so an answer counts with the time at which its check began. An
/// outage begins with a failed check that began after the last outage ended. It ends with a check
/// that the store decided and that began [`OVER_AFTER`] after the last failed one began. So late answers
/// change nothing, and a store that fails some checks of many is one outage, not one for each.
#[derive(Debug)]
pub(crate) struct OutagePeriod {
    /// Times are counted from here.
    base: Instant,
    /// In an outage: [`AWAY`] and the time of the last failed check. Otherwise the time of the
    /// check that ended the last outage, 0 before the first one.
    word: AtomicU64,
    /// The time of the check that began the outage.
    began_us: AtomicU64,
}

/// The time without a failed check after which an outage is over.
const OVER_AFTER: Duration = Duration::from_secs(1);

const OVER_AFTER_US: u64 = OVER_AFTER.as_micros() as u64;

/// The time that a failed check is later than the last stored one before it is stored. Most checks
/// of an outage store nothing.
const STEP_US: u64 = OVER_AFTER_US / 20;

const AWAY: u64 = 1 << 63;

impl OutagePeriod {
    pub(crate) fn new(base: Instant) -> Self {
        Self {
            base,
            word: AtomicU64::new(0),
            began_us: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn is_away(&self) -> bool {
        self.word.load(Ordering::Relaxed) & AWAY != 0
    }

    /// Records a failed check that began at `start`. Returns whether an outage begins with it.
    pub(crate) fn failed(&self, start: Instant) -> bool {
        let at = self.time(start);
        let later = |word: u64| match word & AWAY {
            0 => (at > word).then_some(AWAY | at),
            _ => (at > (word & !AWAY) + STEP_US).then_some(AWAY | at),
        };
        if later(self.word.load(Ordering::Relaxed)).is_none() {
            return false;
        }
        let begins = self
            .word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later)
            .is_ok_and(|word| word & AWAY == 0);
        if begins {
            self.began_us.store(at, Ordering::Relaxed);
        }
        begins
    }

    /// Records a decision of the store on a check that began at `start`. When an outage ends with
    /// it, returns how long it lasted.
    #[cold]
    pub(crate) fn decided(&self, start: Instant) -> Option<Duration> {
        let at = self.time(start);
        let over =
            |word: u64| (word & AWAY != 0 && at >= (word & !AWAY) + OVER_AFTER_US).then_some(at);
        self.word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, over)
            .ok()?;
        Some(Duration::from_micros(
            at.saturating_sub(self.began_us.load(Ordering::Relaxed)),
        ))
    }

    /// Returns a time in microseconds, never 0.
    fn time(&self, at: Instant) -> u64 {
        (micros(at.saturating_duration_since(self.base)) + 1) & !AWAY
    }
}

#[cfg(test)]
mod phase_tests {
    use std::thread;

    use super::*;

    struct Times(OutagePeriod, Instant);

    impl Times {
        fn new() -> Self {
            let base = Instant::now();
            Self(OutagePeriod::new(base), base)
        }

        fn failed(&self, ms: u64) -> bool {
            self.0.failed(self.1 + Duration::from_millis(ms))
        }

        fn decided(&self, ms: u64) -> Option<u64> {
            self.0
                .decided(self.1 + Duration::from_millis(ms))
                .map(|lasted| lasted.as_millis() as u64)
        }
    }

    #[test]
    fn an_outage_begins_once_and_ends_once() {
        let times = Times::new();
        assert_eq!(times.decided(0), None, "there is no outage to end");
        assert!(times.failed(1) && times.0.is_away());
        assert!((2..500).all(|ms| !times.failed(ms)));
        assert_eq!(times.decided(1_600), Some(1_599));
        assert!(!times.0.is_away());
        assert_eq!(times.decided(1_700), None);
        assert!(times.failed(1_800));
    }

    #[test]
    fn an_answer_to_a_check_from_before_the_outage_is_no_end() {
        let times = Times::new();
        assert!(times.failed(5_000));
        for sent in [0, 4_999, 5_000, 5_999] {
            assert_eq!(times.decided(sent), None, "{sent} ms");
        }
        assert_eq!(times.decided(6_000), Some(1_000));
    }

    #[test]
    fn a_check_from_before_the_end_that_fails_later_begins_no_outage() {
        let times = Times::new();
        assert!(times.failed(10));
        assert!(times.decided(2_000).is_some());
        for sent in [0, 11, 1_999, 2_000] {
            assert!(!times.failed(sent), "{sent} ms");
        }
        assert!(times.failed(2_001));
    }

    #[test]
    fn a_store_that_fails_one_check_of_ten_is_in_one_outage() {
        let times = Times::new();
        let begins = (0..10_000)
            .filter(|ms| ms % 10 == 0 && times.failed(*ms))
            .count();
        let ends = (0..10_000)
            .filter(|ms| ms % 10 != 0 && times.decided(*ms).is_some())
            .count();
        assert_eq!((begins, ends), (1, 0));
        assert!(times.decided(10_990).is_some());
    }

    #[test]
    fn one_of_many_threads_begins_the_outage_and_one_ends_it() {
        for _ in 0..100 {
            let times = Times::new();
            let count = |note: &(dyn Fn() -> bool + Sync)| {
                thread::scope(|scope| {
                    let threads: Vec<_> = (0..4).map(|_| scope.spawn(note)).collect();
                    threads
                        .into_iter()
                        .filter_map(|thread| thread.join().ok())
                        .filter(|noted| *noted)
                        .count()
                })
            };
            assert_eq!(count(&|| times.failed(1)), 1);
            assert_eq!(count(&|| times.decided(5_000).is_some()), 1);
        }
    }
}
