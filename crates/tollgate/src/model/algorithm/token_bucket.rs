//! A bucket that gains n units per W. The missing units come back one by one.
//!
//! Its state is the [bucket](super::leaky_bucket::Bucket) of a queue. After a reservation or a late
//! refund, it has a [trace](super::trace).
//! The arithmetic of the bucket is in `leaky_bucket.rs`; this file adds debts and the trace to it.

use super::{
    Meter, Refund, StoredState,
    debt::MOST_BURSTS,
    leaky_bucket::{self, Bucket, add, beyond_us, bursts, ceiling_within},
    rate::{StoredRate, kept_words},
    stored::doubles,
    table::{Numbers, PolicyLevel, Words},
    trace::{Trace, Traced},
};
use crate::{
    Policy,
    model::{charge::Ask, quota::Span},
};

/// A bucket, and its trace if it has one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenBucketState {
    Plain(Bucket),
    Traced(Box<Traced>),
}

impl TokenBucketState {
    fn bucket(&self) -> &Bucket {
        match self {
            Self::Plain(bucket) => bucket,
            Self::Traced(state) => &state.bucket,
        }
    }

    fn bucket_mut(&mut self) -> &mut Bucket {
        match self {
            Self::Plain(bucket) => bucket,
            Self::Traced(state) => &mut state.bucket,
        }
    }

    /// Changes the bucket and its trace.
    fn with_trace(&mut self, change: impl FnOnce(&mut Traced)) {
        let mut state = match self {
            Self::Plain(bucket) => Traced {
                bucket: *bucket,
                trace: None,
            },
            Self::Traced(state) => **state,
        };
        change(&mut state);
        *self = state.into();
    }
}

/// Returns the time within which the bucket has to be full again after a check.
///
/// It goes into debt while it has spent at most a burst less than the most, whatever the cost: so a
/// large cost waits for room no longer than a small one.
#[inline]
fn ceiling(policy: &Policy, ask: Ask) -> Span {
    let quota = policy.quota_ref();
    ceiling_within(quota, ask, || {
        add(quota, bursts(quota, MOST_BURSTS - 1), quota.span(ask.cost))
    })
}

impl Meter for TokenBucketState {
    #[inline]
    fn settle(&mut self, policy: &Policy, other: Option<f64>, now_us: u64) -> (Self, bool) {
        match *self {
            Self::Plain(mut bucket) => {
                let (bucket, mended) = bucket.settle(policy, other, now_us);
                (Self::Plain(bucket), mended)
            }
            Self::Traced(ref state) => {
                let mut state = **state;
                let mended = state.settle(policy, other, now_us);
                (state.into(), mended)
            }
        }
    }

    fn hold(&mut self, policy: &Policy, now_us: u64) -> (Self, bool) {
        let (mut state, mut is_marked) = (self.clone(), false);
        state.with_trace(|state| is_marked = state.hold(policy, now_us));
        (state, is_marked)
    }

    fn keeps_pace(&self, now_us: u64) -> bool {
        self.bucket().keeps_pace(now_us)
    }

    fn mark_held(&mut self, policy: &Policy, other: Option<f64>, now_us: u64, was_marked: bool) {
        self.bucket_mut()
            .mark_held(policy, other, now_us, was_marked);
    }

    fn kept_words(&self, policy: &Policy, pace: f64, now_us: u64, ask: Ask) -> Option<Words> {
        let ceiling = ceiling(policy, ask);
        kept_words(self.bucket(), policy, pace, now_us, ask, ceiling)
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        let (quota, ceiling) = (policy.quota_ref(), ceiling(policy, ask));
        self.bucket().fits_within(quota, now_us, ask.cost, ceiling)
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) {
        self.bucket_mut().charge(policy, now_us, cost, tag);
    }

    fn owe(&mut self, policy: &Policy, other: Option<f64>, now_us: u64, cost: u64) -> bool {
        self.bucket_mut().owe(policy, other, now_us, cost)
    }

    #[inline]
    fn mark_debt(&mut self, policy: &Policy, now_us: u64) {
        self.bucket_mut().mark_debt(policy, now_us);
    }

    fn mark_as_debt(&mut self) {
        self.bucket_mut().mark_as_debt();
    }

    fn remember(&mut self, now_us: u64) {
        self.with_trace(|state| state.remember(now_us));
    }

    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let rate = StoredRate::of(refund.policy, refund.other);
        self.with_trace(|state| state.refund(&rate, refund));
        true
    }

    #[inline]
    fn words(&self, policy: &Policy, now_us: u64, denied: Ask) -> Words {
        self.bucket().words(policy, now_us, denied)
    }

    /// A trace stays until nobody can claim a unit.
    fn fresh_at(&self, policy: &Policy) -> u64 {
        match self {
            Self::Plain(bucket) => bucket.fresh_at(policy),
            Self::Traced(state) => state.ends_us().max(state.bucket.fresh_at(policy)),
        }
    }

    fn to_bytes(&self, policy: &Policy, other: Option<f64>) -> Vec<u8> {
        let mut bytes = self.bucket().to_bytes(policy, other);
        if let Self::Traced(state) = self
            && let Some(trace) = &state.trace
        {
            bytes.extend(doubles(&trace.words()));
        }
        bytes
    }

    fn expires_ms(&self, policy: &Policy) -> u64 {
        match self {
            Self::Plain(bucket) => bucket.expires_ms(policy),
            Self::Traced(state) => leaky_bucket::expires_ms(state.ends_us()),
        }
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let (bucket, pace, trace) = Bucket::split(bytes)?;
        let trace = match trace.len() {
            0 => None,
            // As in the script, a trace that is damaged takes nothing of the bucket along.
            40 => Trace::of_bytes(trace),
            _ => return None,
        };
        Some((Traced { bucket, trace }.into(), pace))
    }

    fn shown(&self, pace: f64) -> StoredState {
        self.bucket().shown(pace)
    }

    fn numbers(policy: &Policy, words: &Words, denied: Ask) -> Numbers {
        leaky_bucket::numbers(policy, words, denied, ceiling(policy, denied))
    }

    /// Returns the time until the debt in which a request left the bucket is paid.
    fn delay_us(policy: &Policy, words: &Words, charged: u64) -> u64 {
        let quota = policy.quota_ref();
        if charged == 0 || (words[0], words[1]) <= quota.span(quota.burst()) {
            return 0;
        }
        beyond_us(quota, words, quota.burst())
    }

    fn end_of(words: &Words, is_owed: impl FnOnce() -> bool) -> Option<Span> {
        Bucket::end_of(words, is_owed)
    }

    fn unspend(policy: &Policy, words: &mut Words, units: u64) {
        Bucket::unspend(policy, words, units);
    }

    fn of_words(policy: &Policy, words: &Words, now_us: u64) -> Option<Self> {
        Bucket::of_words(policy, words, now_us).map(Self::Plain)
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        Bucket::args(policy)
    }

    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        let (whole, part) = ceiling(policy, ask);
        (whole, Some(part))
    }

    /// A traced bucket is decided in its place: to move it would cost an allocation.
    #[inline(always)]
    fn decide(
        &mut self,
        policy: &Policy,
        other: Option<f64>,
        now_us: u64,
        cost: u64,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        let traced = match self {
            // Without a ceiling, a token bucket decides as a leaky bucket does.
            Self::Plain(bucket) => return bucket.decide(policy, other, now_us, cost, tag),
            Self::Traced(traced) => &mut **traced,
        };
        let ask = Ask::from(cost);
        let mut state = *traced;
        let mended = state.settle(policy, other, now_us);
        let fits = state.bucket.fits(policy, now_us, ask);
        let is_charged = fits && cost > 0;
        if is_charged {
            state.bucket.charge(policy, now_us, cost, tag);
        }
        let denied = ask.denied_unless(fits);
        let kept = other
            .filter(|_| !is_charged)
            .and_then(|pace| traced.bucket.kept_words(policy, pace, now_us, denied));
        let words = kept.unwrap_or_else(|| state.bucket.words(policy, now_us, denied));
        let is_written = is_charged || (mended && cost > 0);
        if is_written {
            *traced = state;
            if !is_charged {
                traced.bucket.mark_debt(policy, now_us);
            }
        }
        (PolicyLevel { fits, words }, is_written)
    }
}

impl Default for TokenBucketState {
    fn default() -> Self {
        Self::Plain(Bucket::default())
    }
}

impl From<Traced> for TokenBucketState {
    fn from(state: Traced) -> Self {
        match state.trace {
            Some(_) => Self::Traced(Box::new(state)),
            None => Self::Plain(state.bucket),
        }
    }
}
