//! The bucket of [queues](super::leaky_bucket) and [token buckets](super::token_bucket): the units
//! that wait in the one miss in the other.
//!
//! Its state is the time at which it will be full again, the *theoretical arrival time*. This form
//! is called virtual scheduling, or the generic cell rate algorithm (GCRA) of ITU-T I.371.
//!
//! One unit takes the emission interval T = W/n µs. T is rarely a whole number, so a time is stored
//! as whole microseconds and a remainder in 1/n µs. k periods then give exactly k·n units, for any n
//! and W. Every stored number is an integer that a double represents exactly.
//!
//! The arithmetic is here. The steps of a decision are in the files of the two algorithms.

use super::{
    debt::{MARK, MOST_BURSTS},
    level::{Numbers, Reading},
    stored::{self, whole},
};
use crate::{Policy, Quota, charge::Ask, quota::Span};

/// The time at which the bucket is full again.
// Packed, so that the state of any algorithm takes 24 bytes, and the memory store keeps it in one
// cache line with its key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(Rust, packed(4))]
pub(crate) struct Bucket {
    /// The theoretical arrival time, in whole microseconds since the Unix epoch.
    pub(super) tat_us: u64,
    /// Its remainder in 1/n µs, less than n.
    pub(super) part: u64,
    /// It was stored in debt: it may hold more than its burst.
    pub(super) in_debt: bool,
}

impl Bucket {
    /// Returns the time until the bucket is full. Where many units accrue in a microsecond, a part
    /// of one is worth units too, and is rounded up.
    pub(super) fn ahead_of_part(&self, now_us: u64, interval: f64) -> u64 {
        self.tat_us - now_us + u64::from(self.part > 0 && interval < 1.0)
    }

    #[inline]
    pub(super) fn ahead(&self, now_us: u64) -> Span {
        (self.tat_us - now_us, self.part)
    }

    /// Returns whether the bucket is full again within `ceiling` of a charge.
    #[inline]
    pub(super) fn fits_within(&self, quota: &Quota, now_us: u64, cost: u64, ceiling: Span) -> bool {
        add(quota, self.ahead(now_us), quota.span(cost)) <= ceiling || cost == 0
    }

    /// Returns whether the units of a request with this end are the last ones in a queue.
    pub(super) fn ends_at(&self, end: Span) -> bool {
        (self.tat_us, self.part) == end
    }

    /// Makes a time of units that are spent accrue at once.
    pub(super) fn subtract(&mut self, quota: &Quota, given: Span) {
        (self.tat_us, self.part) = less(quota, (self.tat_us, self.part), given);
    }

    /// Reads the bytes of a bucket: itself, its emission interval, and what follows.
    pub(super) fn split(bytes: &[u8]) -> Option<(Self, f64, &[u8])> {
        let ([tat_us, part, interval], rest) = stored::split(bytes)?;
        let part = whole(part)?;
        let bucket = Self {
            tat_us: whole(tat_us)?,
            part: part % MARK,
            in_debt: part >= MARK,
        };
        (interval > 0.0 && interval.is_finite()).then_some((bucket, interval, rest))
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
    let ceiling = (whole.saturating_add(ask.wait_us()), part);
    // A part of the burst is below every debt.
    if ceiling <= quota.span(quota.burst()) {
        return ceiling;
    }
    ceiling.min(most())
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

/// Derives the numbers from the time until the bucket is full. The reading is whole microseconds and
/// a remainder.
#[inline]
pub(super) fn numbers(policy: &Policy, reading: &Reading, ask: Ask, ceiling: Span) -> Numbers {
    let (quota, cost) = (policy.quota_ref(), ask.cost);
    match quota.span(1) {
        // Usually a unit takes a whole number of microseconds, and 64 bits suffice for every
        // product.
        (unit, 0) if reading[1] == 0 => whole_numbers(quota, unit, reading[0], cost, ceiling.0),
        _ => wide_numbers(quota, reading, cost, ceiling),
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

fn wide_numbers(quota: &Quota, reading: &Reading, cost: u64, ceiling: Span) -> Numbers {
    let n = i128::from(quota.amount());
    let period = i128::from(quota.period_us());
    let used = i128::from(reading[0]) * n + i128::from(reading[1]);
    let top = period * i128::from(quota.burst());
    let remaining = div((top - used).max(0), period);
    let until = |units: u64, top: i128| {
        let missing = i128::from(units) * period + used - top;
        ceil_div(missing.max(0), n)
    };
    let ceiling = i128::from(ceiling.0) * n + i128::from(ceiling.1);
    Numbers {
        remaining,
        retry_us: if cost == 0 { 0 } else { until(cost, ceiling) },
        reset_us: ceil_div(used, n),
        more_us: if used == 0 {
            0
        } else {
            until(remaining + 1, top)
        },
    }
}

/// Returns the reading `passed_us` after this one with at most `most` units left. `None` for a bucket
/// that holds more than its burst, whose bound depends on its debt.
#[inline]
pub(super) fn lowered(
    quota: &Quota,
    reading: &Reading,
    passed_us: u64,
    most: u64,
) -> Option<Reading> {
    let ahead = match reading[0].checked_sub(passed_us) {
        Some(whole) => (whole, reading[1]),
        None => (0, 0),
    };
    let top = quota.span(quota.burst());
    if ahead > top || ahead.1 >= quota.amount() {
        return None;
    }
    let remaining = units_in(quota, less(quota, top, ahead));
    let surplus = remaining.saturating_sub(most);
    let (ahead, part) = add(quota, ahead, quota.span(surplus));
    Some([ahead, part, 0, 0])
}

/// Returns how many units accrue in this time.
#[inline]
fn units_in(quota: &Quota, (whole, part): Span) -> u64 {
    if let (unit, 0) = quota.span(1) {
        return whole / unit;
    }
    let parts = i128::from(whole) * i128::from(quota.amount()) + i128::from(part);
    div(parts, i128::from(quota.period_us()))
}

/// Returns the time until what is spent beyond `units` has come back, in microseconds.
pub(super) fn beyond_us(quota: &Quota, reading: &Reading, units: u64) -> u64 {
    let n = i128::from(quota.amount());
    let used = i128::from(reading[0]) * n + i128::from(reading[1]);
    let beyond = used - i128::from(quota.period_us()) * i128::from(units);
    ceil_div(beyond.max(0), n)
}

fn ceil_div(a: i128, b: i128) -> u64 {
    div(a + b - 1, b)
}

/// Divides two numbers of which none is negative, and rounds down.
///
/// Nearly all fit in 64 bits, where a division takes two fifths of the instructions.
#[inline]
fn div(a: i128, b: i128) -> u64 {
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) => a / b,
        _ => (a / b) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Draws numbers of every length up to these bits, and those at the bounds of 32 and 64 bits.
    fn up_to(bits: u32) -> impl Strategy<Value = i128> {
        let near = |bound: u32| (-2..=2_i128).prop_map(move |more| (1 << bound) + more);
        prop_oneof![
            4 => (any::<u128>(), 0..=bits).prop_map(|(number, bits)| (number & ((1 << bits) - 1)) as i128),
            1 => near(32),
            1 => near(64),
            1 => 0..=3_i128,
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn a_quotient_is_that_of_128_bits_however_long_the_numbers_are(a in up_to(120), b in up_to(66)) {
            let b = b.max(1);
            prop_assert_eq!(div(a, b), (a / b) as u64);
            prop_assert_eq!(ceil_div(a, b), ((a + b - 1) / b) as u64);
        }
    }

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
                    let reading = [ahead, 0, 0, 0];
                    for ceiling in [top, top - 1, unit, top + 3 * unit / 2] {
                        let wide = wide_numbers(&quota, &reading, cost, (ceiling, 0));
                        assert_eq!(whole_numbers(&quota, unit, ahead, cost, ceiling), wide);
                    }
                }
            }
        }
    }
}
