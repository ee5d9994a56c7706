//! A bucket that gains n units per W. The missing units come back one by one.
//!
//! Its state is the [bucket](super::bucket::Bucket) of a queue. After a reservation or a late
//! refund, it has a [trace](super::trace).
//! The arithmetic of the bucket is in `bucket.rs`; this file adds debts and the trace to it.

use super::{
    Adjust, Decide, Meter, Refund, StoredState,
    bucket::{self, Bucket, add, beyond_us, bursts, ceiling_within},
    debt::MOST_BURSTS,
    decide::decide_by_steps,
    level::{Numbers, PolicyLevel, Reading},
    rate::{StoredRate, reading_at_other_rate},
    stored::doubles,
    trace::{Trace, Traced},
};
use crate::{Policy, charge::Ask, quota::Span};

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

impl Decide for TokenBucketState {
    #[inline]
    fn advance(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
    ) -> (Self, bool) {
        match self {
            Self::Plain(bucket) => {
                let (bucket, mended) = bucket.advance(policy, stored_interval, now_us);
                (Self::Plain(bucket), mended)
            }
            Self::Traced(state) => {
                let (state, mended) = state.advance(policy, stored_interval, now_us);
                (state.into(), mended)
            }
        }
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

    #[inline]
    fn note_debt(&mut self, policy: &Policy, stored_interval: Option<f64>, now_us: u64) {
        self.bucket_mut().note_debt(policy, stored_interval, now_us);
    }

    #[inline]
    fn reading(&self, policy: &Policy, now_us: u64, denied: Ask) -> Reading {
        self.bucket().reading(policy, now_us, denied)
    }

    fn reading_as_stored(
        &self,
        policy: &Policy,
        stored_interval: f64,
        now_us: u64,
        ask: Ask,
    ) -> Option<Reading> {
        let ceiling = ceiling(policy, ask);
        reading_at_other_rate(self.bucket(), policy, stored_interval, now_us, ask, ceiling)
    }

    /// A traced bucket is decided in its place: to move it would cost an allocation. Without a
    /// ceiling, a token bucket decides as a leaky bucket does.
    #[inline(always)]
    fn decide(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
        ask: Ask,
        tag: &[u8],
    ) -> (PolicyLevel, bool) {
        match (self, ask.ceiling) {
            (Self::Plain(bucket), None) => bucket.decide(policy, stored_interval, now_us, ask, tag),
            (Self::Traced(traced), None) => {
                traced.decide(policy, stored_interval, now_us, ask, tag)
            }
            (state, Some(_)) => decide_by_steps(state, policy, stored_interval, now_us, ask, tag),
        }
    }
}

impl Adjust for TokenBucketState {
    fn adjustable(&mut self, policy: &Policy, now_us: u64) -> Self {
        match self {
            Self::Plain(bucket) => Self::Plain(bucket.adjustable(policy, now_us)),
            Self::Traced(state) => state.adjustable(policy, now_us).into(),
        }
    }

    fn keeps_interval(&self, now_us: u64) -> bool {
        self.bucket().keeps_interval(now_us)
    }

    fn owe(
        &mut self,
        policy: &Policy,
        stored_interval: Option<f64>,
        now_us: u64,
        cost: u64,
    ) -> bool {
        self.bucket_mut().owe(policy, stored_interval, now_us, cost)
    }

    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let rate = StoredRate::of(refund.policy, refund.stored_interval);
        self.with_trace(|state| state.refund(&rate, refund));
        true
    }

    fn remember(&mut self, now_us: u64) {
        self.with_trace(|state| state.remember(now_us));
    }
}

impl Meter for TokenBucketState {
    fn look(&mut self) {
        self.bucket_mut().look();
    }

    /// A trace stays until nobody can claim a unit.
    fn fresh_at(&self, policy: &Policy) -> u64 {
        match self {
            Self::Plain(bucket) => bucket.fresh_at(policy),
            Self::Traced(state) => state.ends_us().max(state.bucket.fresh_at(policy)),
        }
    }

    fn to_bytes(&self, policy: &Policy, stored_interval: Option<f64>) -> Vec<u8> {
        let mut bytes = self.bucket().to_bytes(policy, stored_interval);
        if let Self::Traced(state) = self
            && let Some(trace) = &state.trace
        {
            bytes.extend(doubles(&trace.numbers()));
        }
        bytes
    }

    fn expires_ms(&self, policy: &Policy) -> u64 {
        match self {
            Self::Plain(bucket) => bucket.expires_ms(policy),
            Self::Traced(state) => bucket::expires_ms(state.ends_us()),
        }
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let (bucket, interval, trace) = Bucket::split(bytes)?;
        let trace = match trace.len() {
            0 => None,
            // As in the script, a trace that is damaged takes nothing of the bucket along.
            40 => Trace::of_bytes(trace),
            _ => return None,
        };
        Some((Traced { bucket, trace }.into(), interval))
    }

    fn shown(&self, stored_interval: f64) -> StoredState {
        self.bucket().shown(stored_interval)
    }

    fn numbers(policy: &Policy, reading: &Reading, denied: Ask) -> Numbers {
        bucket::numbers(policy, reading, denied, ceiling(policy, denied))
    }

    /// Returns the time until the debt in which a request left the bucket is paid.
    fn delay_us(policy: &Policy, reading: &Reading, charged: u64) -> u64 {
        let quota = policy.quota_ref();
        if charged == 0 || (reading[0], reading[1]) <= quota.span(quota.burst()) {
            return 0;
        }
        beyond_us(quota, reading, quota.burst())
    }

    fn end_of(reading: &Reading, is_owed: impl FnOnce() -> bool) -> Option<Span> {
        Bucket::end_of(reading, is_owed)
    }

    fn unspend(policy: &Policy, reading: &mut Reading, units: u64) {
        Bucket::unspend(policy, reading, units);
    }

    fn of_reading(policy: &Policy, reading: &Reading, now_us: u64) -> Option<Self> {
        Bucket::of_reading(policy, reading, now_us).map(Self::Plain)
    }

    #[inline]
    fn lowered(policy: &Policy, reading: &Reading, passed_us: u64, most: u64) -> Option<Reading> {
        Bucket::lowered(policy, reading, passed_us, most)
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        Bucket::args(policy)
    }

    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        let (whole, part) = ceiling(policy, ask);
        (whole, Some(part))
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
