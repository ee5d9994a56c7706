//! A queue of b units that drains at n per W: the units missing in a [bucket](super::token_bucket) are those that wait.

#[cfg(feature = "testing")]
use super::stored::Value;
use super::{
    Meter, Refund, StoredState,
    table::{Numbers, Words},
    token_bucket::{self, Bucket, Rate, ceiling_within},
};
use crate::{
    Policy,
    model::{cost::Ask, quota::Span},
};

pub(crate) type State = Bucket;

/// Returns the time within which the queue has to be empty again after a check. It never holds more than its burst.
#[inline]
fn ceiling(policy: &Policy, ask: Ask) -> Span {
    let quota = policy.quota_ref();
    ceiling_within(quota, ask, || quota.span(quota.burst()))
}

impl Meter for Bucket {
    const READS_OTHER_RATES: bool = true;

    #[inline]
    fn settle(&mut self, policy: &Policy, wrote: &Policy, now_us: u64) -> (Self, bool) {
        let mut state = *self;
        let mended = Self::settle(&mut state, policy.quota_ref(), wrote.quota_ref(), !policy.is_leased(), now_us);
        (state, mended)
    }

    fn hold(&mut self, _policy: &Policy, now_us: u64) -> (Self, bool) {
        let mut state = *self;
        let is_marked = Self::hold(&mut state, now_us);
        (state, is_marked)
    }

    fn is_of_other(&self, policy: &Policy, wrote: &Policy, now_us: u64) -> bool {
        Rate::of(policy.quota_ref(), wrote.quota_ref()).is_other() && self.ahead(now_us) > (0, 0)
    }

    fn mark_held(&mut self, policy: &Policy, wrote: &Policy, now_us: u64, was_marked: bool) {
        Self::mark_held(self, &Rate::of(policy.quota_ref(), wrote.quota_ref()), now_us, was_marked);
    }

    fn kept_words(&self, policy: &Policy, wrote: &Policy, now_us: u64, ask: Ask) -> Option<Words> {
        token_bucket::kept_words(self, policy, wrote, now_us, ask, ceiling(policy, ask))
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        Self::fits(self, policy.quota_ref(), now_us, ask.cost, ceiling(policy, ask))
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        Self::charge(self, policy.quota_ref(), cost);
    }

    fn spent(&self) -> u64 {
        0
    }

    fn owe(&mut self, policy: &Policy, wrote: &Policy, now_us: u64, cost: u64) -> bool {
        Self::owe(self, &Rate::of(policy.quota_ref(), wrote.quota_ref()), now_us, cost);
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
        let rate = Rate::of(refund.policy.quota_ref(), refund.wrote.quota_ref());
        let is_last = refund.end.is_none_or(|end| !rate.is_other() && self.ends_at(end));
        if is_last {
            self.subtract(rate.quota, rate.returned(refund.cost).min(self.ahead(refund.now_us)));
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

    #[cfg(feature = "testing")]
    fn to_value(&self, policy: &Policy) -> Value {
        Value::Bytes(self.to_bytes(policy.quota_ref()))
    }

    #[cfg(feature = "testing")]
    fn expires_ms(&self, _policy: &Policy) -> u64 {
        token_bucket::expires_ms(self.full_us())
    }

    fn decode(value: &[u8]) -> Option<StoredState> {
        token_bucket::decode(value)
    }

    #[cfg(feature = "testing")]
    fn bound(policy: &Policy, span_us: u64) -> Option<u128> {
        Some(token_bucket::bound(policy.quota_ref(), span_us))
    }

    fn numbers(policy: &Policy, words: &Words, denied: Ask) -> Numbers {
        token_bucket::numbers(policy.quota_ref(), words, denied.cost, ceiling(policy, denied))
    }

    fn delay_us(policy: &Policy, words: &Words, charged: u64) -> u64 {
        token_bucket::turn_us(policy.quota_ref(), words, charged)
    }

    fn end_of(words: &Words, _is_owed: impl FnOnce() -> bool) -> Option<Span> {
        Some((words[0], words[1]))
    }

    #[cfg(any(test, feature = "testing"))]
    fn free(policy: &Policy, words: &Words) -> u64 {
        token_bucket::free(policy.quota_ref(), words)
    }

    fn unspend(policy: &Policy, words: &mut Words, units: u64) {
        token_bucket::unspend(policy.quota_ref(), words, units);
    }

    #[cfg(feature = "redis")]
    fn of_words(_policy: &Policy, words: &Words, now_us: u64) -> Option<Self> {
        Some(Self::of_words(words, now_us))
    }

    #[cfg(feature = "redis")]
    fn args(policy: &Policy) -> [Option<u64>; 3] {
        token_bucket::args(policy.quota_ref())
    }

    #[cfg(feature = "redis")]
    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        let (whole, part) = ceiling(policy, ask);
        (whole, Some(part))
    }
}
