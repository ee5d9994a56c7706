//! A queue of b units that drains at n per W: the units missing in a [bucket](super::token_bucket)
//! are those that wait.

use super::{
    Meter, Refund, StoredState,
    rate::{self, Rate},
    table::{Numbers, Words},
    token_bucket::{self, Bucket, ceiling_within},
};
use crate::{
    Policy,
    model::{charge::Ask, quota::Span},
};

pub(crate) type State = Bucket;

/// Returns the time within which the queue has to be empty again after a check. It never holds more
/// than its burst.
#[inline]
fn ceiling(policy: &Policy, ask: Ask) -> Span {
    let quota = policy.quota_ref();
    ceiling_within(quota, ask, || quota.span(quota.burst()))
}

impl Meter for Bucket {
    #[inline]
    fn settle(&mut self, policy: &Policy, other: Option<f64>, now_us: u64) -> (Self, bool) {
        let mut state = *self;
        let mended = Self::settle(
            &mut state,
            policy.quota_ref(),
            other,
            !policy.is_leased(),
            now_us,
        );
        (state, mended)
    }

    fn hold(&mut self, _policy: &Policy, now_us: u64) -> (Self, bool) {
        let mut state = *self;
        let is_marked = Self::hold(&mut state, now_us);
        (state, is_marked)
    }

    fn keeps_pace(&self, now_us: u64) -> bool {
        self.ahead(now_us) > (0, 0)
    }

    fn mark_held(&mut self, policy: &Policy, other: Option<f64>, now_us: u64, was_marked: bool) {
        Self::mark_held(self, &Rate::of(policy, other), now_us, was_marked);
    }

    fn kept_words(&self, policy: &Policy, pace: f64, now_us: u64, ask: Ask) -> Option<Words> {
        rate::kept_words(self, policy, pace, now_us, ask, ceiling(policy, ask))
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        Self::fits(
            self,
            policy.quota_ref(),
            now_us,
            ask.cost,
            ceiling(policy, ask),
        )
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        Self::charge(self, policy.quota_ref(), cost);
    }

    fn spent(&self) -> u64 {
        0
    }

    fn owe(&mut self, policy: &Policy, other: Option<f64>, now_us: u64, cost: u64) -> bool {
        Self::owe(self, &Rate::of(policy, other), now_us, cost);
        true
    }

    #[inline]
    fn mark_debt(&mut self, policy: &Policy, now_us: u64) {
        Self::mark_debt(self, policy.quota_ref(), now_us);
    }

    fn mark_as_debt(&mut self) {
        Self::mark_as_debt(self);
    }

    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let rate = Rate::of(refund.policy, refund.other);
        let is_last = refund
            .end
            .is_none_or(|end| !rate.is_other() && self.ends_at(end));
        if is_last {
            self.subtract(
                rate.quota,
                rate.returned(refund.cost).min(self.ahead(refund.now_us)),
            );
        }
        is_last
    }

    #[inline]
    fn words(&self, _policy: &Policy, now_us: u64, _denied: Ask) -> Words {
        Self::words(self, now_us)
    }

    fn fresh_at(&self, _policy: &Policy) -> u64 {
        Self::fresh_at(self)
    }

    fn to_bytes(&self, policy: &Policy, other: Option<f64>) -> Vec<u8> {
        self.bytes(policy.quota_ref(), other)
    }

    fn expires_ms(&self, _policy: &Policy) -> u64 {
        token_bucket::expires_ms(self.full_us())
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let (bucket, pace, []) = Self::of_bytes(bytes)? else {
            return None;
        };
        Some((bucket, pace))
    }

    fn shown(&self, pace: f64) -> StoredState {
        Self::shown(self, pace)
    }

    fn numbers(policy: &Policy, words: &Words, denied: Ask) -> Numbers {
        token_bucket::numbers(
            policy.quota_ref(),
            words,
            denied.cost,
            ceiling(policy, denied),
        )
    }

    fn delay_us(policy: &Policy, words: &Words, charged: u64) -> u64 {
        token_bucket::turn_us(policy.quota_ref(), words, charged)
    }

    fn end_of(words: &Words, _is_owed: impl FnOnce() -> bool) -> Option<Span> {
        Some((words[0], words[1]))
    }

    fn unspend(policy: &Policy, words: &mut Words, units: u64) {
        token_bucket::unspend(policy.quota_ref(), words, units);
    }

    fn of_words(_policy: &Policy, words: &Words, now_us: u64) -> Option<Self> {
        Some(Self::of_words(words, now_us))
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        token_bucket::args(policy.quota_ref())
    }

    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        let (whole, part) = ceiling(policy, ask);
        (whole, Some(part))
    }
}
