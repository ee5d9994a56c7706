//! The state of any algorithm, and the steps of a decision.

#[cfg(feature = "calendar")]
use super::calendar_window;
#[cfg(feature = "testing")]
use super::stored::Value;
use super::{
    debt, fixed_window, interval_bucket,
    kind::Algorithm,
    numbers::{PolicyLevel, Words},
    sliding_buckets, sliding_log, sliding_window, token_bucket,
    trace::Traced,
};
use crate::{
    Policy,
    model::{cost::Ask, quota::Span},
};

/// The state of one policy for one key. The token bucket and the leaky bucket share a form, and so do both windows. A token
/// bucket has a trace after a reservation or a refund.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    TokenBucket(token_bucket::State),
    Traced(Box<Traced>),
    IntervalBucket(interval_bucket::State),
    Window(fixed_window::State),
    #[cfg(feature = "calendar")]
    CalendarWindow(fixed_window::State),
    SlidingWindow(sliding_window::State),
    SlidingBuckets(sliding_buckets::State),
    SlidingLog(sliding_log::State),
}

/// A state that was brought to the current time and the current quota.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) state: State,
    /// Is true when the state had to be mended. A mended state is stored even after a denial.
    pub(crate) mended: bool,
}

impl State {
    /// Returns the state of a key from which nothing was spent.
    pub(crate) fn fresh(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::TokenBucket(token_bucket::State::default()),
            Algorithm::IntervalBucket => Self::IntervalBucket(interval_bucket::State::default()),
            Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => Self::Window(fixed_window::State::default()),
            #[cfg(feature = "calendar")]
            Algorithm::CalendarWindow { .. } => Self::CalendarWindow(fixed_window::State::default()),
            Algorithm::SlidingWindow => Self::SlidingWindow(sliding_window::State::default()),
            Algorithm::SlidingBuckets { .. } => Self::SlidingBuckets(sliding_buckets::State::default()),
            Algorithm::SlidingLog => Self::SlidingLog(sliding_log::State::default()),
        }
    }

    /// Brings this state to `now_us` under `policy`. It was stored under the policy `wrote`.
    ///
    /// A state on the heap [is moved out](Self::is_moved) unless it had to be mended. The caller
    /// puts it back when it stores nothing.
    pub(crate) fn settle(&mut self, policy: &Policy, wrote: &Policy, now_us: u64) -> Settled {
        let quota = policy.quota_ref();
        let (state, mended) = match *self {
            Self::TokenBucket(mut state) => {
                let mended = state.settle(quota, wrote.quota_ref(), now_us);
                (Self::TokenBucket(state), mended)
            }
            Self::Traced(ref state) => {
                let mut state = **state;
                let mended = state.settle(quota, wrote.quota_ref(), now_us);
                (state.into(), mended)
            }
            Self::IntervalBucket(mut state) => {
                let mended = state.settle(quota, now_us);
                (Self::IntervalBucket(state), mended)
            }
            Self::Window(mut state) => {
                let mended = state.settle(quota, policy.algorithm() == Algorithm::FixedWindow, now_us);
                (Self::Window(state), mended)
            }
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(mut state) => {
                let mended = calendar_window::settle(&mut state, policy.periods(now_us));
                (Self::CalendarWindow(state), mended)
            }
            Self::SlidingWindow(mut state) => {
                let mended = state.settle(quota, now_us);
                (Self::SlidingWindow(state), mended)
            }
            Self::SlidingBuckets(ref mut state) => {
                let (state, mended) = state.settle(policy.buckets(), now_us);
                (Self::SlidingBuckets(state), mended)
            }
            Self::SlidingLog(ref mut state) => {
                let (state, mended) = state.settle(quota, now_us);
                (Self::SlidingLog(state), mended)
            }
        };
        Settled { state, mended }
    }

    /// Decides for a set of one policy, in place. Returns the level, and whether the state was changed.
    ///
    /// Inlined: the four steps of each algorithm then compile into one function, without calls between them.
    #[inline(always)]
    pub(crate) fn decide(
        &mut self,
        policy: &Policy,
        wrote: &Policy,
        now_us: u64,
        cost: u64,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        let quota = policy.quota_ref();
        match self {
            Self::TokenBucket(state) => decide(
                state,
                cost,
                |state| state.settle(quota, wrote.quota_ref(), now_us),
                |state| state.fits(quota, now_us, cost, quota.span(quota.burst())),
                |state| state.charge(quota, cost),
                |state, is_charged| {
                    // A bucket that was charged is in no debt.
                    if !is_charged {
                        state.mark_debt(quota, now_us);
                    }
                },
                |state| state.words(now_us),
            ),
            Self::Traced(state) => decide(
                &mut **state,
                cost,
                |state| state.settle(quota, wrote.quota_ref(), now_us),
                |state| state.bucket.fits(quota, now_us, cost, quota.span(quota.burst())),
                |state| state.bucket.charge(quota, cost),
                |state, is_charged| {
                    if !is_charged {
                        state.bucket.mark_debt(quota, now_us);
                    }
                },
                |state| state.bucket.words(now_us),
            ),
            Self::IntervalBucket(state) => decide(
                state,
                cost,
                |state| state.settle(quota, now_us),
                |state| state.fits(quota.burst(), cost),
                |state| state.charge(cost),
                |state, is_charged| {
                    if !is_charged {
                        state.mark_debt(quota);
                    }
                },
                |state| state.words(quota, now_us),
            ),
            Self::Window(state) => decide(
                state,
                cost,
                |state| state.settle(quota, policy.algorithm() == Algorithm::FixedWindow, now_us),
                |state| state.fits(quota.amount(), cost),
                |state| state.charge(cost),
                |_, _| {},
                |state| state.words(quota, now_us),
            ),
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(state) => {
                let periods = policy.periods(now_us);
                decide(
                    state,
                    cost,
                    |state| calendar_window::settle(state, periods),
                    |state| state.fits(quota.amount(), cost),
                    |state| state.charge(cost),
                    |_, _| {},
                    |state| calendar_window::words(state, periods, now_us),
                )
            }
            Self::SlidingWindow(state) => decide(
                state,
                cost,
                |state| state.settle(quota, now_us),
                |state| state.fits(quota, now_us, quota.amount(), cost),
                |state| state.charge(cost),
                |state, _| state.mark_debt(quota),
                |state| state.words(quota, now_us),
            ),
            Self::SlidingBuckets(_) | Self::SlidingLog(_) => self.decide_by_steps(policy, wrote, now_us, cost, tag),
        }
    }

    fn decide_by_steps(
        &mut self,
        policy: &Policy,
        wrote: &Policy,
        now_us: u64,
        cost: u64,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        let Settled { mut state, mended } = self.settle(policy, wrote, now_us);
        let ask = Ask::from(cost);
        let fits = state.fits(policy, now_us, ask);
        let is_charged = fits && cost > 0;
        if is_charged {
            state.charge(policy, now_us, cost, tag);
        }
        let words = state.words(policy, now_us, ask.denied_unless(fits));
        let is_written = is_charged || (mended && cost > 0);
        if is_written || (!mended && state.is_moved()) {
            *self = state;
        }
        (PolicyLevel { fits, words }, is_written)
    }

    /// Returns `true` when settling moved this state out instead of copying it.
    pub(crate) fn is_moved(&self) -> bool {
        match self {
            Self::SlidingBuckets(state) => state.is_some(),
            Self::SlidingLog(state) => state.is_some(),
            Self::TokenBucket(_)
            | Self::Traced(_)
            | Self::IntervalBucket(_)
            | Self::Window(_)
            | Self::SlidingWindow(_) => false,
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(_) => false,
        }
    }

    /// Returns `true` when `ask` fits a settled state.
    pub(crate) fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        let (quota, cost) = (policy.quota_ref(), ask.cost);
        // Only a bucket has a burst that differs from its amount, and a ceiling with a wait.
        let limit = ask.limit(quota.amount());
        match self {
            Self::TokenBucket(state) => state.fits(quota, now_us, cost, token_bucket::ceiling_span(policy, ask)),
            Self::Traced(state) => state.bucket.fits(quota, now_us, cost, token_bucket::ceiling_span(policy, ask)),
            Self::IntervalBucket(state) => state.fits_within(quota, now_us, ask),
            Self::Window(state) => state.fits(limit, cost),
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(state) => state.fits(limit, cost),
            Self::SlidingWindow(state) => state.fits(quota, now_us, limit, cost),
            Self::SlidingBuckets(state) => state.fits(limit, cost),
            Self::SlidingLog(state) => state.fits(limit, cost),
        }
    }

    /// Spends `cost` from a settled state that it fits. Only a sliding log stores the tag.
    pub(crate) fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) {
        match self {
            Self::TokenBucket(state) => state.charge(policy.quota_ref(), cost),
            Self::Traced(state) => state.bucket.charge(policy.quota_ref(), cost),
            Self::IntervalBucket(state) => state.charge(cost),
            Self::Window(state) => state.charge(cost),
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(state) => state.charge(cost),
            Self::SlidingWindow(state) => state.charge(cost),
            Self::SlidingBuckets(state) => state.charge(policy.buckets(), now_us, cost),
            Self::SlidingLog(state) => state.charge(now_us, cost, tag),
        }
    }

    /// Charges `cost` to a settled state although it need not fit, up to [the most](debt::most) that is spent in debt.
    /// Returns whether the state is written.
    pub(crate) fn owe(&mut self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        if let Some(bucket) = self.bucket_mut() {
            bucket.owe(policy.quota_ref(), now_us, cost);
            return true;
        }
        let cost = cost.min(debt::most(policy).saturating_sub(self.spent()));
        if cost > 0 {
            self.charge(policy, now_us, cost, &[]);
        }
        cost > 0 || matches!(self, Self::IntervalBucket(_))
    }

    /// Lets a settled state that was charged by a reservation remember what a late refund has to know.
    pub(crate) fn remember(&mut self, policy: &Policy, now_us: u64) {
        if policy.algorithm() == Algorithm::TokenBucket {
            self.with_trace(|state| state.remember(now_us));
        }
    }

    /// Changes a token bucket and its trace.
    fn with_trace(&mut self, change: impl FnOnce(&mut Traced)) {
        let mut state = match self {
            Self::TokenBucket(bucket) => Traced { bucket: *bucket, trace: None },
            Self::Traced(state) => **state,
            _ => return,
        };
        change(&mut state);
        *self = state.into();
    }

    fn bucket_mut(&mut self) -> Option<&mut token_bucket::State> {
        match self {
            Self::TokenBucket(state) => Some(state),
            Self::Traced(state) => Some(&mut state.bucket),
            _ => None,
        }
    }

    /// Returns the units that a settled state counts, of which a debt has a greatest number.
    fn spent(&self) -> u64 {
        match self {
            Self::TokenBucket(_) | Self::Traced(_) => 0,
            Self::IntervalBucket(state) => state.used(),
            Self::Window(state) => state.count,
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(state) => state.count,
            Self::SlidingWindow(state) => state.current(),
            Self::SlidingBuckets(state) => state.used(),
            Self::SlidingLog(state) => state.used(),
        }
    }

    /// Marks a settled state that is in debt, before it is stored.
    pub(crate) fn mark_debt(&mut self, policy: &Policy, now_us: u64) {
        match self {
            Self::TokenBucket(state) => state.mark_debt(policy.quota_ref(), now_us),
            Self::Traced(state) => state.bucket.mark_debt(policy.quota_ref(), now_us),
            Self::IntervalBucket(state) => state.mark_debt(policy.quota_ref()),
            Self::SlidingWindow(state) => state.mark_debt(policy.quota_ref()),
            _ => {}
        }
    }

    /// Returns what a look at this state reads: one that holds more than the quota, because that was lowered, is not
    /// corrected, because nothing is stored. It is read as a debt.
    pub(crate) fn looked_at(&self) -> Self {
        let mut state = self.clone();
        match &mut state {
            Self::TokenBucket(state) => state.mark_as_debt(),
            Self::Traced(state) => state.bucket.mark_as_debt(),
            Self::IntervalBucket(state) => state.mark_as_debt(),
            Self::SlidingWindow(state) => state.mark_as_debt(),
            _ => {}
        }
        state
    }

    /// Returns up to `cost` units, which were spent at `spent_us`, to a settled state.
    ///
    /// `end` is the end of the places that a request has in a queue or in a debt, or the time at which a token bucket would
    /// have been full. Only the last places are taken back: the requests behind keep their turns, and a place between them
    /// would be given to two requests. `None` returns the last places.
    pub(crate) fn refund(&mut self, policy: &Policy, now_us: u64, spent_us: u64, cost: u64, end: Option<Span>) {
        match self {
            Self::TokenBucket(state) if policy.algorithm() == Algorithm::LeakyBucket => {
                let is_last = end.is_none_or(|end| state.ends_at(end));
                state.refund(policy.quota_ref(), now_us, if is_last { cost } else { 0 });
            }
            Self::TokenBucket(_) | Self::Traced(_) => {
                self.with_trace(|state| state.refund(policy.quota_ref(), now_us, spent_us, cost, end));
            }
            Self::IntervalBucket(state) => {
                let is_last = end.is_none_or(|end| state.ends_at(policy.quota_ref(), end));
                state.refund(spent_us, if is_last { cost } else { 0 });
            }
            Self::Window(state) => state.refund(spent_us, cost),
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(state) => state.refund(spent_us, cost),
            Self::SlidingWindow(state) => state.refund(policy.quota_ref(), spent_us, cost),
            Self::SlidingBuckets(state) => state.refund(spent_us, cost),
            Self::SlidingLog(state) => state.refund(spent_us, cost),
        }
    }

    /// Returns the words of a settled state. `denied` is what did not fit, or nothing.
    pub(crate) fn words(&self, policy: &Policy, now_us: u64, denied: impl Into<Ask>) -> Words {
        let denied = denied.into();
        let quota = policy.quota_ref();
        match self {
            Self::TokenBucket(state) => state.words(now_us),
            Self::Traced(state) => state.bucket.words(now_us),
            Self::IntervalBucket(state) => state.words(quota, now_us),
            Self::Window(state) => state.words(quota, now_us),
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(state) => calendar_window::words(state, policy.periods(now_us), now_us),
            Self::SlidingWindow(state) => state.words(quota, now_us),
            Self::SlidingBuckets(state) => state.words(quota, policy.buckets(), now_us, denied),
            Self::SlidingLog(state) => state.words(quota, now_us, denied),
        }
    }

    /// Returns the time at which the state equals a fresh one. It is not after the current time when the state is fresh. A
    /// trace stays until nobody can claim a unit.
    pub(crate) fn fresh_at(&self, policy: &Policy) -> u64 {
        match self {
            Self::TokenBucket(state) => state.fresh_at(),
            Self::Traced(state) => state.fresh_at(),
            Self::IntervalBucket(state) => state.fresh_at(policy.quota_ref()),
            Self::Window(state) => state.fresh_at(policy.quota_ref()),
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(state) => calendar_window::fresh_at(state, policy),
            Self::SlidingWindow(state) => state.fresh_at(policy.quota_ref()),
            Self::SlidingBuckets(state) => state.fresh_at(policy.buckets()),
            Self::SlidingLog(state) => state.fresh_at(policy.quota_ref()),
        }
    }

    /// Returns the time at which Redis expires the key, in milliseconds since the Unix epoch.
    #[cfg(feature = "testing")]
    pub(crate) fn expires_ms(&self, policy: &Policy) -> u64 {
        match self {
            // The end of the second, so that further charges within it do not change the expiry.
            Self::TokenBucket(state) => (state.full_us() / 1_000_000 + 1) * 1_000,
            Self::Traced(state) => (state.ends_us() / 1_000_000 + 1) * 1_000,
            _ => self.fresh_at(policy) / 1_000 + 1,
        }
    }

    /// Returns the value that the script stores.
    #[cfg(feature = "testing")]
    pub(crate) fn to_value(&self, policy: &Policy) -> Value {
        match self {
            Self::TokenBucket(state) => Value::Bytes(state.to_bytes(policy.quota_ref())),
            Self::Traced(state) => {
                let trace = state.trace.map(|trace| super::stored::doubles(&trace.words()));
                Value::Bytes([state.bucket.to_bytes(policy.quota_ref()), trace.unwrap_or_default()].concat())
            }
            Self::IntervalBucket(state) => Value::Bytes(state.to_bytes()),
            Self::Window(state) => Value::Bytes(state.to_bytes(policy.quota_ref())),
            #[cfg(feature = "calendar")]
            Self::CalendarWindow(state) => Value::Bytes(calendar_window::to_bytes(state, policy)),
            Self::SlidingWindow(state) => Value::Bytes(state.to_bytes()),
            Self::SlidingBuckets(state) => Value::Bytes(state.to_bytes()),
            Self::SlidingLog(state) => Value::List(state.to_list()),
        }
    }
}

impl From<Traced> for State {
    fn from(state: Traced) -> Self {
        match state.trace {
            Some(_) => Self::Traced(Box::new(state)),
            None => Self::TokenBucket(state.bucket),
        }
    }
}

/// Runs the steps of a decision on a copy of a state of fixed size, and stores the copy when it was changed.
///
/// Inlined for the same reason as [`State::decide`].
#[inline(always)]
fn decide<S: Copy>(
    stored: &mut S,
    cost: u64,
    settle: impl FnOnce(&mut S) -> bool,
    fits: impl FnOnce(&S) -> bool,
    charge: impl FnOnce(&mut S),
    mark_debt: impl FnOnce(&mut S, bool),
    words: impl FnOnce(&S) -> Words,
) -> (PolicyLevel, bool) {
    let mut state = *stored;
    let mended = settle(&mut state);
    let fits = fits(&state);
    let is_charged = fits && cost > 0;
    if is_charged {
        charge(&mut state);
    }
    let is_written = is_charged || (mended && cost > 0);
    if is_written {
        *stored = state;
        mark_debt(stored, is_charged);
    }
    (PolicyLevel { fits, words: words(&state) }, is_written)
}
