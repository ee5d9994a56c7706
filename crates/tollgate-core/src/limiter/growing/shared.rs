//! The part of a growing reservation that its owner shares with those who count: the account, and the calls
//! for slices. At most one call is on its way.
//! See `growth.rs`, and the room's `mod.rs`, for what callers see.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify, time::Instant};
use tollgate_model::raw::{Charge, PolicySetParts};

use super::{account::SliceAccount, error::GrowthError, pace::GrowthPace, plan::GrowthPlan};
use crate::{
    Cost, Decision, Error, ErrorKind, Key, Limiter, LimiterHandle,
    lock::Lock,
    reservation::{Reservation, ReservationId, Settlement},
    store::Check,
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
    /// The slices that the store may have charged although they are not held.
    unknown: Vec<UnknownSlice>,
    is_settled: bool,
}

/// A call that brought no slice.
#[derive(Clone)]
pub(super) struct Refusal {
    pub(super) error: GrowthError,
    /// The time at which it may be otherwise. `None` for never.
    pub(super) until: Option<Instant>,
}

/// A slice whose answer was lost.
struct UnknownSlice {
    number: u64,
    limiter: Limiter,
    lapses: Instant,
}

/// The end of an attempt to count units.
pub(super) enum Taken {
    Yes,
    /// Too few are left.
    Short,
    Settled,
}

type BoxedCall<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(250);

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
        let unknown = may_be_charged(decision.degraded()).then(|| UnknownSlice {
            number: 0,
            limiter: limiter.clone(),
            lapses: now + time_to_live,
        });
        let state = GrowthState {
            is_settled: first.is_denied(),
            account: SliceAccount::new(&plan, first),
            pace: GrowthPace::new(now, now - asked),
            next: 1,
            is_asking: false,
            answers: 0,
            refusal: None,
            unknown: unknown.into_iter().collect(),
        };
        Arc::new(Self {
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
        })
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
            state.pace.counted(units);
            // A store in the process answers at once, so nothing is asked for in advance.
            self.runtime.is_some() && state.is_due(self.plan.units())
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

    /// Settles the reservation once, and waits for the store.
    pub(super) async fn settle(&self, is_cancelled: bool) -> Result<Settlement, Error> {
        if self.decision.is_denied() {
            return Ok(Settlement::Lapsed);
        }
        let outcomes = all(self.close(is_cancelled)).await;
        let mut settlement = Settlement::Settled;
        for outcome in outcomes.into_iter().flatten() {
            match outcome? {
                Settlement::Settled => {}
                other => settlement = other,
            }
        }
        Ok(settlement)
    }

    pub(super) fn settle_in_background(&self) {
        let calls = self.close(false);
        if !calls.is_empty() {
            self.run(Box::pin(async {
                for outcome in all(calls).await.into_iter().flatten() {
                    note(&outcome);
                }
            }));
        }
    }

    /// Returns the calls that settle the reservation: none after the first time. The calls that only
    /// cancel what nobody holds have no outcome.
    fn close(&self, is_cancelled: bool) -> Vec<BoxedCall<Option<Result<Settlement, Error>>>> {
        let (slices, unknown) = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.is_settled, true) {
                return Vec::new();
            }
            let slices = state.account.close(&self.plan, !is_cancelled);
            (slices, std::mem::take(&mut state.unknown))
        };
        self.changed.notify_waiters();
        let mut calls: Vec<BoxedCall<_>> = Vec::new();
        for (slice, costs) in slices {
            calls.push(Box::pin(async move { Some(slice.commit(costs).await) }));
        }
        // Behind the slices: one that this process holds for itself has the same id.
        for unknown in unknown {
            let (key, id) = (self.key.clone(), self.id.slice(unknown.number));
            calls.push(Box::pin(async move {
                unknown.cancel(&key, &id).await;
                None
            }));
        }
        calls
    }
}

impl GrowthState {
    fn is_due(&self, slice: u64) -> bool {
        let now = Instant::now();
        let is_refused = self
            .refusal
            .as_ref()
            .is_some_and(|refusal| refusal.until.is_none_or(|until| now < until));
        !self.is_asking && !is_refused && self.pace.is_due(now, self.account.left(), slice)
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
        if shared.state.lock().is_settled {
            let unknown = std::mem::take(&mut shared.state.lock().unknown);
            for unknown in unknown {
                let id = shared.id.slice(unknown.number);
                unknown.cancel(&shared.key, &id).await;
            }
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
            state.note_unknown(self, cause);
            let refusal = match answer {
                Ok(slice) if slice.is_allowed() => {
                    state.next += 1;
                    if state.is_settled {
                        surplus = Some(slice);
                    } else {
                        state.account.add(&shared.plan, self.number, slice);
                        state.pace.granted(now, now - self.asked);
                    }
                    None
                }
                Ok(slice) => slice.into_result().err().map(|denied| Refusal {
                    until: denied.decision().retry_after().map(|after| now + after),
                    error: GrowthError::Denied(denied),
                }),
                Err(error) => Some(Refusal {
                    error: GrowthError::Failed(error),
                    until: Some(now + PAUSE),
                }),
            };
            state.refusal = refusal;
            state.answers += 1;
            state.is_asking = false;
        }
        self.has_ended = true;
        shared.changed.notify_waiters();
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

impl GrowthState {
    /// Notes whether the store may have charged a slice that it did not answer. Its next answer under
    /// the same id says so.
    fn note_unknown(&mut self, asking: &SliceCall, cause: Option<ErrorKind>) {
        let policies = asking.limiter.policies();
        let is_of = |unknown: &UnknownSlice| {
            unknown.number == asking.number
                && unknown.limiter.policies().fingerprint() == policies.fingerprint()
        };
        match cause {
            None => self.unknown.retain(|unknown| !is_of(unknown)),
            Some(_) if may_be_charged(cause) && !self.unknown.iter().any(is_of) => {
                self.unknown.push(UnknownSlice {
                    number: asking.number,
                    limiter: asking.limiter.clone(),
                    lapses: Instant::now() + asking.shared.time_to_live,
                });
            }
            Some(_) => {}
        }
    }
}

impl UnknownSlice {
    /// Returns what the store may have charged. The limiter repeats what does not reach it.
    async fn cancel(&self, key: &Key, id: &ReservationId) {
        let (inner, nothing) = (self.limiter.inner(), Charge::from(Cost::ZERO));
        let check = Check::of(self.limiter.policies(), key, nothing.borrow());
        note(&inner.commit(check, id, self.lapses).await);
    }
}

/// Returns whether a call that failed for this reason may have charged its cost.
fn may_be_charged(cause: Option<ErrorKind>) -> bool {
    matches!(
        cause,
        Some(
            ErrorKind::ConnectionLost
                | ErrorKind::Protocol
                | ErrorKind::Timeout
                | ErrorKind::Unavailable
        )
    )
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
