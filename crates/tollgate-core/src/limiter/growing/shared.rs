//! The part of a growing reservation that its owner shares with those who count: the account, and the calls
//! for slices. At most one call is on its way. What a slice has left goes back before the store forgets it.
//! See `growth.rs`, and the room's `mod.rs`, for what callers see.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use super::{
    account::SliceAccount,
    error::GrowthError,
    pace::GrowthPace,
    plan::GrowthPlan,
    unknown::{UnknownSlice, UnknownSlices},
};
use crate::{
    Costs, Decision, Error, ErrorKind, Key, Limiter, LimiterHandle,
    lock::Lock,
    reservation::{Reservation, ReservationId, Settlement},
    runtime,
};

/// A growing reservation, as everybody holds it.
pub(super) struct SharedGrowth {
    plan: GrowthPlan,
    key: Key,
    id: ReservationId,
    time_to_live: Duration,
    /// The decision over the estimate and the first slice.
    decision: Decision,
    limiter: Limiter,
    /// The handle of the limiter of the further slices, if that may change.
    followed: Option<LimiterHandle>,
    /// The runtime of the calls. A store in the process needs none.
    runtime: Option<Handle>,
    state: Lock<GrowthState>,
    /// Wakes those who wait for a slice.
    changed: Notify,
}

struct GrowthState {
    account: SliceAccount,
    pace: GrowthPace,
    /// The number of the slice that is asked for next. It stays the same until that slice is granted.
    next: u64,
    is_asking: bool,
    /// The number of calls that have ended.
    answers: u64,
    /// The reason why the last call brought no slice.
    refusal: Option<Refusal>,
    unknown: UnknownSlices,
    /// The task that waits for the first end of a time to live.
    timer: Option<AbortHandle>,
    is_settled: bool,
}

/// A call that brought no slice.
#[derive(Clone)]
pub(super) struct Refusal {
    pub(super) error: GrowthError,
    /// The time at which it may be otherwise. `None` for never.
    pub(super) until: Option<Instant>,
    /// Until then, who needs a slice gets this answer without a call.
    stands: Option<Instant>,
}

impl Refusal {
    /// Returns the refusal of a reservation that is settled.
    pub(super) fn settled() -> Self {
        Self {
            error: GrowthError::Settled,
            until: None,
            stands: None,
        }
    }
}

/// The end of an attempt to count units.
pub(super) enum Taken {
    Yes,
    /// Too few are left.
    Short,
    Settled,
}

type BoxedCall<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A call that settles a slice. One that only cancels what nobody holds has no outcome.
type SettlingCall = BoxedCall<SettlingOutcome>;

type SettlingOutcome = Option<Result<Settlement, Error>>;

/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(250);

/// The longest time for which a denial answers who needs a slice. A slice is denied in advance, shortly
/// before it is needed, and units that come back from others meanwhile are not worth a second call.
const DENIAL_STANDS: Duration = Duration::from_secs(1);

/// The longest time that a call which settles a slice has before the store forgets it.
const LONGEST_HEAD_START: Duration = Duration::from_secs(5);

/// Returns when a slice that was asked for at this time goes back. The store forgets it no earlier than
/// a time to live after that, so a call sent then finds it, also if it has to be repeated.
fn end_of(asked: Instant, time_to_live: Duration) -> Instant {
    asked + time_to_live - (time_to_live / 8).min(LONGEST_HEAD_START)
}

impl SharedGrowth {
    /// Begins with the first slice, which was asked for at `asked` and has come just now.
    pub(super) fn new(
        first: Reservation,
        asked: Instant,
        plan: GrowthPlan,
        time_to_live: Duration,
        followed: Option<LimiterHandle>,
    ) -> Arc<Self> {
        let (limiter, now) = (first.limiter().clone(), Instant::now());
        let (key, id, decision) = (
            first.key().clone(),
            first.id().clone(),
            first.decision().clone(),
        );
        let ends = end_of(asked, time_to_live);
        let mut unknown = UnknownSlices::default();
        let slice = UnknownSlice {
            number: 0,
            limiter: limiter.clone(),
            ends,
            lapses: now + time_to_live,
        };
        unknown.note(slice, decision.degraded());
        let state = GrowthState {
            is_settled: first.is_denied(),
            account: SliceAccount::new(&plan, first, ends),
            pace: GrowthPace::new(now, now - asked),
            next: 1,
            is_asking: false,
            answers: 0,
            refusal: None,
            unknown,
            timer: None,
        };
        let shared = Arc::new(Self {
            plan,
            key,
            id,
            time_to_live,
            decision,
            runtime: if limiter.is_in_process() {
                None
            } else {
                Handle::try_current().ok()
            },
            limiter,
            followed,
            state: Lock::new(state),
            changed: Notify::new(),
        });
        shared.set_timer();
        shared
    }

    /// Returns whether the policy with this name is charged slices.
    pub(super) fn grows(&self, policy: &str) -> bool {
        self.plan.grows(Some(policy))
    }

    pub(super) fn decision(&self) -> &Decision {
        &self.decision
    }

    pub(super) fn id(&self) -> &ReservationId {
        &self.id
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Returns the units that were reserved, and those that were counted.
    pub(super) fn units(&self) -> (u64, u64) {
        let account = &self.state.lock().account;
        (account.reserved(), account.counted())
    }

    /// Returns the number of calls that have ended, and why the last one brought no slice.
    pub(super) fn answers(&self) -> (u64, Option<Refusal>) {
        let state = self.state.lock();
        (state.answers, state.refusal.clone())
    }

    /// Returns the denial of the next slice, if it is young enough to stand.
    pub(super) fn denial(&self) -> Option<Refusal> {
        let state = self.state.lock();
        let refusal = state.refusal.as_ref().filter(|_| !state.is_asking)?;
        let stands = refusal.stands.is_some_and(|stands| Instant::now() < stands);
        stands.then(|| refusal.clone())
    }

    /// Counts units if they are reserved, and asks for the next slice when it is time.
    pub(super) fn take(self: &Arc<Self>, units: u64) -> Taken {
        let is_due = {
            let mut state = self.state.lock();
            let state = &mut *state;
            if state.is_settled {
                return Taken::Settled;
            }
            if !state.account.take(&self.plan, units) {
                return Taken::Short;
            }
            // A store in the process answers at once, so nothing is asked for in advance.
            self.runtime.is_some() && {
                let now = Instant::now();
                state.pace.counted(now, units);
                state.is_due(now, self.plan.units())
            }
        };
        if is_due {
            self.ask();
        }
        Taken::Yes
    }

    /// Asks for the next slice, unless that is on its way. A store in the process has answered when
    /// this returns. Returns `false` for a reservation that is settled.
    pub(super) fn ask(self: &Arc<Self>) -> bool {
        let number = {
            let mut state = self.state.lock();
            if state.is_settled || state.is_asking {
                return !state.is_settled;
            }
            state.is_asking = true;
            state.next
        };
        let asking = SliceCall {
            shared: Arc::clone(self),
            limiter: match &self.followed {
                Some(followed) => Limiter::clone(&followed.load()),
                None => self.limiter.clone(),
            },
            number,
            asked: Instant::now(),
            has_ended: false,
        };
        self.run(Box::pin(asking.call()));
        true
    }

    /// Runs a call to its end. It is polled at once, so that the store receives it before any later
    /// call of this process.
    fn run(&self, mut call: BoxedCall<()>) {
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        let mut context = Context::from_waker(Waker::noop());
        if call.as_mut().poll(&mut context).is_pending()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(call);
        }
    }

    /// Settles the reservation once, and waits for the store. Whoever drops the future does not wait, and
    /// what is left of the calls runs to its end.
    pub(super) async fn settle(&self, is_cancelled: bool) -> Result<Settlement, Error> {
        if self.decision.is_denied() {
            return Ok(Settlement::Lapsed);
        }
        let is_too_late = is_cancelled && self.state.lock().account.first_has_ended();
        let calls = Box::pin(all(self.close(is_cancelled)));
        let mut settling = Settling {
            shared: self,
            calls: Some(calls),
        };
        let outcomes = settling.outcomes().await;
        let mut settlement = match is_too_late {
            true => Settlement::AlreadySettled,
            false => Settlement::Settled,
        };
        for outcome in outcomes.into_iter().flatten() {
            match outcome? {
                Settlement::Settled => {}
                other => settlement = other,
            }
        }
        Ok(settlement)
    }

    pub(super) fn settle_in_background(&self) {
        self.run_all(self.close(false));
    }

    /// Returns the calls that settle the reservation: none after the first time.
    fn close(&self, is_cancelled: bool) -> Vec<SettlingCall> {
        let (slices, unknown) = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.is_settled, true) {
                return Vec::new();
            }
            if let Some(timer) = state.timer.take() {
                timer.abort();
            }
            let slices = state.account.close(&self.plan, !is_cancelled);
            (slices, state.unknown.take())
        };
        self.changed.notify_waiters();
        self.settling(slices, unknown)
    }

    fn settling(
        &self,
        slices: Vec<(Reservation, Costs)>,
        unknown: Vec<UnknownSlice>,
    ) -> Vec<SettlingCall> {
        let mut calls: Vec<SettlingCall> = Vec::new();
        for (slice, costs) in slices {
            calls.push(Box::pin(async move { Some(slice.commit(costs).await) }));
        }
        for unknown in unknown {
            let (key, id) = (self.key.clone(), self.id.slice(unknown.number));
            calls.push(Box::pin(async move {
                note(&unknown.cancel(&key, &id).await);
                None
            }));
        }
        calls
    }

    fn run_all(&self, calls: Vec<SettlingCall>) {
        if !calls.is_empty() {
            self.run(Box::pin(async {
                for outcome in all(calls).await.into_iter().flatten() {
                    note(&outcome);
                }
            }));
        }
    }

    /// Sets the timer for the first time to live that ends, unless it is set: what was asked for later ends
    /// later. Without a runtime, nothing goes back then.
    fn set_timer(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let (None, Some(ends)) = (&state.timer, state.next_end()) else {
            return;
        };
        let runtime = self.runtime.clone().or_else(|| runtime::current().ok());
        let Some(runtime) = runtime else { return };
        // Whoever forgets the reservation without settling it does not keep it alive.
        let shared = Arc::downgrade(self);
        let timer = runtime.spawn(async move {
            sleep_until(ends).await;
            if let Some(shared) = shared.upgrade() {
                shared.return_ended();
            }
        });
        state.timer = Some(timer.abort_handle());
    }

    /// Settles the slices whose time to live has ended, at what was counted.
    fn return_ended(self: &Arc<Self>) {
        let (slices, unknown) = {
            let mut state = self.state.lock();
            let (state, now) = (&mut *state, Instant::now());
            if state.is_settled {
                return;
            }
            state.timer = None;
            let asked = state.asked();
            let unknown = state.unknown.end(now, asked);
            // The store answers the id of a slice that went back as if it were held.
            if unknown.iter().any(|unknown| unknown.number == state.next) {
                state.next += 1;
            }
            (state.account.end(&self.plan, now), unknown)
        };
        self.run_all(self.settling(slices, unknown));
        self.set_timer();
    }
}

impl GrowthState {
    /// Returns the number of the slice that is asked for at present.
    fn asked(&self) -> Option<u64> {
        self.is_asking.then_some(self.next)
    }

    /// Returns when the first time to live ends, if something may go back then.
    fn next_end(&self) -> Option<Instant> {
        if self.is_settled {
            return None;
        }
        let unknown = self.unknown.next_end(self.asked());
        self.account.next_end().into_iter().chain(unknown).min()
    }

    fn is_due(&self, now: Instant, slice: u64) -> bool {
        let is_refused = self
            .refusal
            .as_ref()
            .is_some_and(|refusal| refusal.until.is_none_or(|until| now < until));
        !self.is_asking && !is_refused && self.pace.is_due(now, self.account.left(), slice)
    }
}

/// The calls of a settlement for which somebody waits.
struct Settling<'a> {
    shared: &'a SharedGrowth,
    /// `None` once they have ended.
    calls: Option<BoxedCall<Vec<SettlingOutcome>>>,
}

impl Settling<'_> {
    async fn outcomes(&mut self) -> Vec<SettlingOutcome> {
        let outcomes = match &mut self.calls {
            Some(calls) => calls.await,
            None => Vec::new(),
        };
        self.calls = None;
        outcomes
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        if let Some(calls) = self.calls.take() {
            self.shared.run(Box::pin(async {
                for outcome in calls.await.into_iter().flatten() {
                    note(&outcome);
                }
            }));
        }
    }
}

/// One call for a slice.
struct SliceCall {
    shared: Arc<SharedGrowth>,
    limiter: Limiter,
    number: u64,
    asked: Instant,
    has_ended: bool,
}

impl SliceCall {
    async fn call(mut self) {
        let shared = Arc::clone(&self.shared);
        let answer = self
            .limiter
            .reserve(shared.key.clone(), shared.plan.costs(self.number).clone())
            .id(shared.id.slice(self.number))
            .time_to_live(shared.time_to_live)
            .capped()
            .await;
        if let Some(surplus) = self.end(answer) {
            // The reservation was settled meanwhile.
            note(&surplus.cancel().await);
        }
        let unknown = {
            let mut state = shared.state.lock();
            match state.is_settled {
                true => state.unknown.take(),
                false => Vec::new(),
            }
        };
        for call in shared.settling(Vec::new(), unknown) {
            call.await;
        }
    }

    /// Notes the answer. Returns the slice if nobody can use it any more.
    fn end(&mut self, answer: Result<Reservation, Error>) -> Option<Reservation> {
        let (shared, now) = (Arc::clone(&self.shared), Instant::now());
        let cause = match &answer {
            Ok(slice) => slice.decision().degraded(),
            Err(error) => Some(error.kind()),
        };
        let mut surplus = None;
        {
            let mut state = shared.state.lock();
            let state = &mut *state;
            let slice = UnknownSlice {
                number: self.number,
                limiter: self.limiter.clone(),
                ends: end_of(self.asked, shared.time_to_live),
                lapses: now + shared.time_to_live,
            };
            // The store has held it since the first call that charged it.
            let ends = state.unknown.end_of(&slice).unwrap_or(slice.ends);
            state.unknown.note(slice, cause);
            let refusal = match answer {
                Ok(slice) if slice.is_allowed() => {
                    state.next += 1;
                    if state.is_settled {
                        surplus = Some(slice);
                    } else {
                        state.account.add(&shared.plan, self.number, slice, ends);
                        state.pace.granted(now, now - self.asked);
                    }
                    None
                }
                Ok(slice) => slice.into_result().err().map(|denied| {
                    let until = denied.decision().retry_after().map(|after| now + after);
                    let stands = now + DENIAL_STANDS;
                    Refusal {
                        until,
                        error: GrowthError::Denied(denied),
                        // A store in the process answers without a trip.
                        stands: (shared.runtime.as_ref())
                            .map(|_| until.map_or(stands, |until| until.min(stands))),
                    }
                }),
                Err(error) => Some(Refusal {
                    error: GrowthError::Failed(error),
                    until: Some(now + PAUSE),
                    stands: None,
                }),
            };
            state.refusal = refusal;
            state.answers += 1;
            state.is_asking = false;
        }
        self.has_ended = true;
        shared.changed.notify_waiters();
        shared.set_timer();
        surplus
    }
}

impl Drop for SliceCall {
    /// Lets others ask when the runtime ends in the middle of a call.
    fn drop(&mut self) {
        if !self.has_ended {
            let cause = ErrorKind::Unavailable;
            let error = Error::new(cause, "the call for a slice was dropped");
            let _ = self.end(Err(error));
        }
    }
}

fn note(outcome: &Result<Settlement, Error>) {
    match outcome {
        Ok(Settlement::Lapsed) => {
            tracing::debug!("a slice has lapsed before it was settled, and stays charged");
        }
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(%error, "a slice stays charged until its commit is repeated");
        }
    }
}

/// Runs calls at the same time. Each is polled at once.
async fn all<T>(calls: Vec<BoxedCall<T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().map(|call| (call, None)).collect();
    poll_fn(move |context| {
        for (call, outcome) in &mut calls {
            if outcome.is_none()
                && let Poll::Ready(ready) = call.as_mut().poll(context)
            {
                *outcome = Some(ready);
            }
        }
        if calls.iter().any(|(_, outcome)| outcome.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(calls.drain(..).filter_map(|(_, outcome)| outcome).collect())
    })
    .await
}
