//! A queue of b units that drains at n per W, and the bucket of it and of the
//! [token bucket](super::token_bucket): the units that wait here miss there.
//!
//! Its state is the time at which it will be full again. This form is called virtual scheduling, or
//! the generic cell rate algorithm (GCRA) of ITU-T I.371.
//!
//! One unit takes T = W/n µs. T is rarely a whole number, so a time is stored as whole microseconds
//! and a remainder in 1/n µs. k periods then give exactly k·n units, for any n and W. Every stored
//! number is an integer that a double represents exactly.
//! A bucket that was stored at another rate is read in `rate.rs`; what only token buckets do is in
//! `token_bucket.rs`.

use super::{
    Meter, Refund, StoredState,
    debt::{MARK, MOST_BURSTS},
    rate::{StoredRate, converted, kept_words},
    stored::{self, unmarked, whole},
    table::{Numbers, Words},
};
use crate::{
    Policy, Quota,
    model::{charge::Ask, quota::Span},
};

/// The time at which the bucket is full again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bucket {
    /// Whole microseconds since the Unix epoch.
    pub(super) full_us: u64,
    /// The remainder in 1/n µs, less than n. A stored state in debt is [marked](MARK) here.
    pub(super) part: u64,
}

impl Bucket {
    /// Returns the time until the bucket is full. Where many units accrue in a microsecond, a part
    /// of one is worth units too, and is rounded up.
    pub(super) fn ahead_of_part(&self, now_us: u64, pace: f64) -> u64 {
        self.full_us - now_us + u64::from(self.part > 0 && pace < 1.0)
    }

    #[inline]
    pub(super) fn ahead(&self, now_us: u64) -> Span {
        (self.full_us - now_us, self.part)
    }

    /// Returns whether the bucket is full again within `ceiling` of a charge.
    #[inline]
    pub(super) fn fits_within(&self, quota: &Quota, now_us: u64, cost: u64, ceiling: Span) -> bool {
        add(quota, self.ahead(now_us), quota.span(cost)) <= ceiling || cost == 0
    }

    /// Returns whether the units of a request with this end are the last ones in a queue.
    pub(super) fn ends_at(&self, end: Span) -> bool {
        (self.full_us, self.part) == end
    }

    /// Makes a time of units that are spent accrue at once.
    pub(super) fn subtract(&mut self, quota: &Quota, given: Span) {
        (self.full_us, self.part) = less(quota, (self.full_us, self.part), given);
    }

    /// Reads the bytes of a bucket: itself, its pace, and what follows.
    pub(super) fn split(bytes: &[u8]) -> Option<(Self, f64, &[u8])> {
        let ([full_us, part, pace], rest) = stored::split(bytes)?;
        let bucket = Self {
            full_us: whole(full_us)?,
            part: whole(part)?,
        };
        (pace > 0.0 && pace.is_finite()).then_some((bucket, pace, rest))
    }
}

/// Returns the time within which a bucket has to be full again after a check, at most `most` if it
/// has a ceiling.
#[inline]
pub(super) fn ceiling_within(quota: &Quota, ask: Ask, most: impl FnOnce() -> Span) -> Span {
    if ask.ceiling.is_none() {
        return quota.span(quota.burst());
    }
    let (whole, part) = quota.span(ask.limit(quota.burst()));
    (whole.saturating_add(ask.wait_us()), part).min(most())
}

/// Returns the time within which the queue has to be empty again after a check. It never holds more
/// than its burst.
#[inline]
fn ceiling(policy: &Policy, ask: Ask) -> Span {
    let quota = policy.quota_ref();
    ceiling_within(quota, ask, || quota.span(quota.burst()))
}

/// A token bucket takes these steps, too, where it is not another one.
impl Meter for Bucket {
    /// A bucket of another rate that is full again within its own drain time is read, and not
    /// mended: it holds what others spent who know the other rate. One that holds more than the
    /// burst then has no room for any cost.
    #[inline]
    fn settle(&mut self, policy: &Policy, other: Option<f64>, now_us: u64) -> (Self, bool) {
        let (mut state, quota) = (*self, policy.quota_ref());
        if state.full_us < now_us {
            (state.full_us, state.part) = (now_us, 0);
            return (state, false);
        }
        let (mut mended, mut is_in_debt) = (false, false);
        if state.part >= quota.amount() || other.is_some() {
            is_in_debt = state.part >= MARK;
            state.part %= MARK;
        }
        let top = quota.span(quota.burst());
        if other.is_some() || state.part >= quota.amount() {
            let most = if is_in_debt { most(quota) } else { top };
            let is_kept = !policy.is_leased() && other.is_some() && state.ahead(now_us).0 <= most.0;
            // The rate has changed: keep the spent units, not the time in which they would have
            // returned.
            let pace = other.unwrap_or_else(|| quota.pace());
            let ahead = converted(state.ahead_of_part(now_us, pace), pace, quota);
            (state.full_us, state.part) = (now_us + ahead, 0);
            if is_kept {
                if state.ahead(now_us) > most {
                    let most = bursts(quota, MOST_BURSTS);
                    (state.full_us, state.part) = (now_us + most.0, most.1);
                }
                return (state, false);
            }
            mended = true;
        }
        if state.ahead(now_us) > top {
            let most = if is_in_debt { most(quota) } else { top };
            if state.ahead(now_us) > most {
                (state.full_us, state.part) = (now_us + most.0, most.1);
                mended = true;
            }
        }
        (state, mended)
    }

    fn hold(&mut self, _policy: &Policy, now_us: u64) -> (Self, bool) {
        let (mut state, is_marked) = (*self, self.part >= MARK);
        state.part %= MARK;
        if state.full_us < now_us {
            (state.full_us, state.part) = (now_us, 0);
            return (state, false);
        }
        (state, is_marked)
    }

    fn keeps_pace(&self, now_us: u64) -> bool {
        self.ahead(now_us) > (0, 0)
    }

    fn mark_held(&mut self, policy: &Policy, other: Option<f64>, now_us: u64, was_marked: bool) {
        let (whole, part) = self.ahead(now_us);
        let is_in_debt = (whole, part) > StoredRate::of(policy, other).top();
        if part < MARK && (was_marked && (whole, part) > (0, 0) || is_in_debt) {
            self.part += MARK;
        }
    }

    fn kept_words(&self, policy: &Policy, pace: f64, now_us: u64, ask: Ask) -> Option<Words> {
        kept_words(self, policy, pace, now_us, ask, ceiling(policy, ask))
    }

    #[inline]
    fn fits(&self, policy: &Policy, now_us: u64, ask: Ask) -> bool {
        self.fits_within(policy.quota_ref(), now_us, ask.cost, ceiling(policy, ask))
    }

    #[inline]
    fn charge(&mut self, policy: &Policy, _now_us: u64, cost: u64, _tag: &[u8]) {
        let quota = policy.quota_ref();
        (self.full_us, self.part) = add(quota, (self.full_us, self.part), quota.span(cost));
    }

    /// Takes back nothing that others charged beyond the most. At another rate it is not known
    /// whether that is a debt, so it is marked as one.
    fn owe(&mut self, policy: &Policy, other: Option<f64>, now_us: u64, cost: u64) -> bool {
        let (rate, ahead) = (StoredRate::of(policy, other), self.ahead(now_us));
        let (whole, part) = add(rate.quota, ahead, rate.charged(cost))
            .min(rate.most())
            .max(ahead);
        (self.full_us, self.part) = (now_us + whole, part);
        if rate.is_other() {
            self.part += MARK;
        }
        true
    }

    #[inline]
    fn mark_debt(&mut self, policy: &Policy, now_us: u64) {
        let quota = policy.quota_ref();
        if self.ahead(now_us) > quota.span(quota.burst()) {
            self.part += MARK;
        }
    }

    fn mark_as_debt(&mut self) {
        self.part = self.part % MARK + MARK;
    }

    fn refund(&mut self, refund: &Refund<'_>) -> bool {
        let rate = StoredRate::of(refund.policy, refund.other);
        let is_last = refund
            .end
            .is_none_or(|end| !rate.is_other() && self.ends_at(end));
        if is_last {
            let returned = rate.returned(refund.cost).min(self.ahead(refund.now_us));
            self.subtract(rate.quota, returned);
        }
        is_last
    }

    #[inline]
    fn words(&self, _policy: &Policy, now_us: u64, _denied: Ask) -> Words {
        let (ahead, part) = self.ahead(now_us);
        [ahead, part, 0, 0]
    }

    fn fresh_at(&self, _policy: &Policy) -> u64 {
        self.full_us + u64::from(!self.part.is_multiple_of(MARK))
    }

    fn to_bytes(&self, policy: &Policy, other: Option<f64>) -> Vec<u8> {
        let pace = other.unwrap_or_else(|| policy.quota_ref().pace());
        [self.full_us as f64, self.part as f64, pace]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }

    fn expires_ms(&self, _policy: &Policy) -> u64 {
        expires_ms(self.full_us)
    }

    fn of_bytes(bytes: &[u8]) -> Option<(Self, f64)> {
        let (bucket, pace, []) = Self::split(bytes)? else {
            return None;
        };
        Some((bucket, pace))
    }

    fn shown(&self, pace: f64) -> StoredState {
        StoredState::Bucket {
            full_us: self.full_us,
            part: unmarked(self.part),
            pace,
        }
    }

    fn numbers(policy: &Policy, words: &Words, denied: Ask) -> Numbers {
        numbers(policy, words, denied, ceiling(policy, denied))
    }

    /// Returns the time until all units that were in the queue before have left.
    fn delay_us(policy: &Policy, words: &Words, charged: u64) -> u64 {
        beyond_us(policy.quota_ref(), words, charged)
    }

    fn end_of(words: &Words, _is_owed: impl FnOnce() -> bool) -> Option<Span> {
        Some((words[0], words[1]))
    }

    fn unspend(policy: &Policy, words: &mut Words, units: u64) {
        let quota = policy.quota_ref();
        let (whole, part) = quota.span(units);
        let borrow = u64::from(words[1] < part);
        words[0] = words[0].saturating_sub(whole + borrow);
        words[1] = words[1] + borrow * quota.amount() - part;
    }

    fn of_words(_policy: &Policy, words: &Words, now_us: u64) -> Option<Self> {
        Some(Self {
            full_us: now_us + words[0],
            part: words[1],
        })
    }

    fn args(policy: &Policy) -> [Option<u64>; 3] {
        let quota = policy.quota_ref();
        [Some(quota.period_us()), Some(quota.burst()), None]
    }

    fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
        let (whole, part) = ceiling(policy, ask);
        (whole, Some(part))
    }
}

/// Returns the time of the most units that are spent in debt.
pub(super) fn most(quota: &Quota) -> Span {
    bursts(quota, MOST_BURSTS)
}

/// Returns the time of so many bursts.
pub(super) fn bursts(quota: &Quota, count: u64) -> Span {
    let (whole, part) = quota.span(quota.burst());
    let parts = part * count;
    (
        whole * count + parts / quota.amount(),
        parts % quota.amount(),
    )
}

#[inline]
pub(super) fn add(quota: &Quota, a: Span, b: Span) -> Span {
    let part = a.1 + b.1;
    let carry = u64::from(part >= quota.amount());
    (a.0 + b.0 + carry, part - carry * quota.amount())
}

#[inline]
pub(super) fn less(quota: &Quota, a: Span, b: Span) -> Span {
    let borrow = u64::from(a.1 < b.1);
    (a.0 - b.0 - borrow, a.1 + borrow * quota.amount() - b.1)
}

/// Returns the expiry of a bucket that is stored until this time: the end of the second, so that
/// further charges within it do not change the expiry.
pub(super) fn expires_ms(ends_us: u64) -> u64 {
    (ends_us / 1_000_000 + 1) * 1_000
}

/// Derives the numbers from the time until the bucket is full. The words are whole microseconds and
/// a remainder.
#[inline]
pub(super) fn numbers(policy: &Policy, words: &Words, ask: Ask, ceiling: Span) -> Numbers {
    let (quota, cost) = (policy.quota_ref(), ask.cost);
    match quota.span(1) {
        // Usually a unit takes a whole number of microseconds, and 64 bits suffice for every
        // product.
        (unit, 0) if words[1] == 0 => whole_numbers(quota, unit, words[0], cost, ceiling.0),
        _ => wide_numbers(quota, words, cost, ceiling),
    }
}

#[inline]
fn whole_numbers(quota: &Quota, unit: u64, ahead: u64, cost: u64, ceiling: u64) -> Numbers {
    let top = unit * quota.burst();
    let remaining = top.saturating_sub(ahead) / unit;
    let until = |units: u64, top: u64| (units * unit + ahead).saturating_sub(top);
    Numbers {
        remaining,
        retry_us: if cost == 0 { 0 } else { until(cost, ceiling) },
        reset_us: ahead,
        more_us: if ahead == 0 {
            0
        } else {
            until(remaining + 1, top)
        },
    }
}

fn wide_numbers(quota: &Quota, words: &Words, cost: u64, ceiling: Span) -> Numbers {
    let n = i128::from(quota.amount());
    let period = i128::from(quota.period_us());
    let used = i128::from(words[0]) * n + i128::from(words[1]);
    let top = period * i128::from(quota.burst());
    let remaining = ((top - used) / period).max(0);
    let until = |units: i128, top: i128| ceil_div((units * period + used - top).max(0), n);
    let ceiling = i128::from(ceiling.0) * n + i128::from(ceiling.1);
    Numbers {
        remaining: remaining as u64,
        retry_us: if cost == 0 {
            0
        } else {
            until(i128::from(cost), ceiling)
        },
        reset_us: ceil_div(used, n),
        more_us: if used == 0 {
            0
        } else {
            until(remaining + 1, top)
        },
    }
}

/// Returns the time until what is spent beyond `units` has come back, in microseconds.
pub(super) fn beyond_us(quota: &Quota, words: &Words, units: u64) -> u64 {
    let n = i128::from(quota.amount());
    let used = i128::from(words[0]) * n + i128::from(words[1]);
    let beyond = used - i128::from(quota.period_us()) * i128::from(units);
    ceil_div(beyond.max(0), n)
}

fn ceil_div(a: i128, b: i128) -> u64 {
    ((a + b - 1) / b) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_64_bit_numbers_equal_the_128_bit_numbers() {
        for quota in [
            Quota::per_second(10),
            Quota::per_minute(600).with_burst(7),
            Quota::per_day(1).with_burst(9),
        ] {
            let (unit, _) = quota.span(1);
            let (top, _) = quota.span(quota.burst());
            for ahead in [
                0,
                1,
                unit - 1,
                unit,
                unit + 1,
                top / 2,
                top - unit,
                top - 1,
                top,
                top + 1,
                8 * top,
            ] {
                for cost in 0..=quota.burst() {
                    let words = [ahead, 0, 0, 0];
                    for ceiling in [top, top - 1, unit, top + 3 * unit / 2] {
                        let wide = wide_numbers(&quota, &words, cost, (ceiling, 0));
                        assert_eq!(whole_numbers(&quota, unit, ahead, cost, ceiling), wide);
                    }
                }
            }
        }
    }
}
