//! A [bucket](super::bucket) that gains n units per W. The missing units come back one by one.
//!
//! After a reservation or a late refund it has a [trace](super::trace).

#[cfg(feature = "testing")]
use super::stored::{Value, doubles};
use super::{
    Meter, StoredState,
    bucket::{self, Bucket, ceiling_within},
    debt::MOST_BURSTS,
    numbers::{Numbers, PolicyLevel, Words},
    trace::Traced,
};
use crate::{
    Policy,
    model::{cost::Ask, quota::Span},
};

/// A bucket, and its trace if it has one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Plain(Bucket),
    Traced(Box<Traced>),
}

impl State {
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
            Self::Plain(bucket) => Traced { bucket: *bucket, trace: None },
            Self::Traced(state) => **state,
        };
        change(&mut state);
        *self = state.into();
    }
}

/// Returns the time within which the bucket has to be full again after a check.
///
/// It goes into debt while it has spent at most a burst less than the most, whatever the cost: so a large cost waits for room
/// no longer than a small one.
#[inline]
fn ceiling(policy: &Policy, ask: Ask) -> Span {
    let quota = policy.quota_ref();
    ceiling_within(quota, ask, || bucket::add(quota, bucket::bursts(quota, MOST_BURSTS - 1), quota.span(ask.cost)))
}

impl Meter for State {
    #[inline]
    fn settle(&mut self, policy: &Policy, wrote: &Policy, now_us: u64) -> (Self, bool) {
        let (quota, wrote) = (policy.quota_ref(), wrote.quota_ref());
        match *self {
            Self::Plain(mut bucket) => {
                let mended = bucket.settle(quota, wrote, now_us);
                (Self::Plain(bucket), mended)
            }
            Self::Traced(ref state) => {
                let mut state = **state;
                let mended = state.settle(quota, wrote, now_us);
                (state.into(), mended)
            }
        }
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        self.bucket().fits(policy.quota_ref(), now_us, ask.cost, ceiling(policy, ask))
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        self.bucket_mut().charge(policy.quota_ref(), cost);
    }

    fn spent(&self) -> u64 {
        0
    }

    fn owe(&mut self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        self.bucket_mut().owe(policy.quota_ref(), now_us, cost);
        true
    }

    #[inline]
    fn mark_debt(&mut self, policy: &Policy, now_us: u64) {
        self.bucket_mut().mark_debt(policy.quota_ref(), now_us);
    }

    fn mark_as_debt(&mut self) {
        self.bucket_mut().mark_as_debt();
    }

    fn remember(&mut self, now_us: u64) {
        self.with_trace(|state| state.remember(now_us));
    }

    fn refund(&mut self, policy: &Policy, now_us: u64, spent_us: u64, cost: u64, end: Option<Span>) {
        self.with_trace(|state| state.refund(policy.quota_ref(), now_us, spent_us, cost, end));
    }

    #[inline]
    fn words(&self, _policy: &Policy, now_us: u64, _denied: Ask) -> Words {
        self.bucket().words(now_us)
    }

    /// A trace stays until nobody can claim a unit.
    fn fresh_at(&self, _policy: &Policy) -> u64 {
        match self {
            Self::Plain(bucket) => bucket.fresh_at(),
            Self::Traced(state) => state.fresh_at(),
        }
    }

    #[cfg(feature = "testing")]
    fn to_value(&self, policy: &Policy) -> Value {
        let trace = match self {
            Self::Traced(state) => state.trace.map(|trace| doubles(&trace.words())),
            Self::Plain(_) => None,
        };
        Value::Bytes([self.bucket().to_bytes(policy.quota_ref()), trace.unwrap_or_default()].concat())
    }

    #[cfg(feature = "testing")]
    fn expires_ms(&self, _policy: &Policy) -> u64 {
        bucket::expires_ms(match self {
            Self::Plain(bucket) => bucket.full_us(),
            Self::Traced(state) => state.ends_us(),
        })
    }

    fn decode(value: &[u8]) -> Option<StoredState> {
        bucket::decode(value)
    }

    #[cfg(feature = "testing")]
    fn bound(policy: &Policy, span_us: u64) -> Option<u128> {
        Some(bucket::bound(policy.quota_ref(), span_us))
    }

    fn numbers(policy: &Policy, words: &Words, denied: Ask) -> Numbers {
        bucket::numbers(policy.quota_ref(), words, denied.cost, ceiling(policy, denied))
    }

    fn delay_us(policy: &Policy, words: &Words, charged: u64) -> u64 {
        if charged > 0 { bucket::debt_us(policy.quota_ref(), words) } else { 0 }
    }

    fn end_of(words: &Words, _is_owed: impl FnOnce() -> bool) -> Option<Span> {
        Some((words[0], words[1]))
    }

    #[cfg(any(test, feature = "testing"))]
    fn free(policy: &Policy, words: &Words) -> u64 {
        bucket::free(policy.quota_ref(), words)
    }

    #[cfg(feature = "redis")]
    fn unspend(policy: &Policy, words: &mut Words, units: u64) {
        bucket::unspend(policy.quota_ref(), words, units);
    }

    #[cfg(feature = "redis")]
    fn of_words(_policy: &Policy, words: &Words, now_us: u64) -> Option<Self> {
        Some(Self::Plain(Bucket::of_words(words, now_us)))
    }

    #[cfg(feature = "redis")]
    fn args(policy: &Policy) -> [Option<u64>; 3] {
        bucket::args(policy.quota_ref())
    }

    #[cfg(feature = "redis")]
    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        let (whole, part) = ceiling(policy, ask);
        (whole, Some(part))
    }

    /// A traced bucket is decided in its place: to move it would cost an allocation.
    #[inline(always)]
    fn decide(&mut self, policy: &Policy, wrote: &Policy, now_us: u64, cost: u64, tag: &[u8]) -> (PolicyLevel, bool) {
        let traced = match self {
            // Without a ceiling, a token bucket decides as a leaky bucket does.
            Self::Plain(bucket) => return bucket.decide(policy, wrote, now_us, cost, tag),
            Self::Traced(traced) => &mut **traced,
        };
        let quota = policy.quota_ref();
        let mut state = *traced;
        let mended = state.settle(quota, wrote.quota_ref(), now_us);
        let fits = state.bucket.fits(quota, now_us, cost, quota.span(quota.burst()));
        let is_charged = fits && cost > 0;
        if is_charged {
            state.bucket.charge(quota, cost);
        }
        let words = state.bucket.words(now_us);
        let is_written = is_charged || (mended && cost > 0);
        if is_written {
            *traced = state;
            if !is_charged {
                traced.bucket.mark_debt(quota, now_us);
            }
        }
        (PolicyLevel { fits, words }, is_written)
    }
}

impl Default for State {
    fn default() -> Self {
        Self::Plain(Bucket::default())
    }
}

impl From<Traced> for State {
    fn from(state: Traced) -> Self {
        match state.trace {
            Some(_) => Self::Traced(Box::new(state)),
            None => Self::Plain(state.bucket),
        }
    }
}
