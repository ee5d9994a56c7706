//! The values of states, as the scripts store them.

use tollgate::Quota;

use super::state_key::Kind;

/// Holds the state of a policy for a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stored {
    /// A token bucket or a leaky bucket: when it is full again, and the microseconds of one unit.
    Bucket {
        full_us: u64,
        part: u64,
        pace: f64,
    },
    IntervalBucket {
        start_us: u64,
        missing: u64,
    },
    Window {
        start_us: u64,
        count: u64,
        period_us: u64,
    },
    SlidingWindow {
        start_us: u64,
        current: u64,
        previous: u64,
    },
    /// The number of each sub-window that is in use, and its units.
    SlidingBuckets {
        width_us: u64,
        buckets: Vec<(u64, u64)>,
    },
    SlidingLog {
        units: u64,
    },
}

/// The end of the numbers that a double holds exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Stored {
    /// Reads the value of a key. Returns `None` for a value that no script writes.
    pub(super) fn decode(kind: Kind, value: &[u8]) -> Option<Self> {
        match kind {
            Kind::TokenBucket | Kind::LeakyBucket => {
                let ([full_us, part, pace], []) = doubles(value)? else { return None };
                let is_pace = pace > 0.0 && pace.is_finite();
                is_pace.then_some(Self::Bucket { full_us: whole(full_us)?, part: whole(part)?, pace })
            }
            Kind::IntervalBucket => {
                let ([start_us, missing], []) = doubles(value)? else { return None };
                Some(Self::IntervalBucket { start_us: whole(start_us)?, missing: whole(missing)? })
            }
            Kind::FixedWindow | Kind::WindowFromFirstHit => {
                let ([start_us, count, period_us], []) = doubles(value)? else { return None };
                let (start_us, count, period_us) = (whole(start_us)?, whole(count)?, whole(period_us)?);
                (period_us > 0).then_some(Self::Window { start_us, count, period_us })
            }
            Kind::SlidingWindow => {
                let ([start_us, current, previous], []) = doubles(value)? else { return None };
                let (current, previous) = (whole(current)?, whole(previous)?);
                Some(Self::SlidingWindow { start_us: whole(start_us)?, current, previous })
            }
            Kind::SlidingBuckets => {
                let ([width_us, newest, _], buckets) = doubles(value)?;
                let (width_us, newest) = (whole(width_us)?, whole(newest)?);
                let (buckets, []) = buckets.as_chunks::<6>() else { return None };
                let buckets = buckets.iter().map(|[low, high, a, b, c, d]| {
                    // The lowest 16 bits of the number; no bucket is newer than the newest one.
                    let back = (newest as u16).wrapping_sub(u16::from_le_bytes([*low, *high]));
                    let units = u32::from_le_bytes([*a, *b, *c, *d]);
                    (newest.saturating_sub(back.into()), u64::from(units))
                });
                (width_us > 0).then(|| Self::SlidingBuckets { width_us, buckets: buckets.collect() })
            }
            Kind::CalendarWindow => {
                let ([start_us, count, end_us], []) = doubles(value)? else { return None };
                let (start_us, count, end_us) = (whole(start_us)?, whole(count)?, whole(end_us)?);
                let period_us = end_us.checked_sub(start_us).filter(|&period_us| period_us > 0)?;
                Some(Self::Window { start_us, count, period_us })
            }
            // A list, which is read by its length.
            Kind::SlidingLog => None,
        }
    }

    /// Returns the units that are spent at `now_us`. The key expires at `expires_us`.
    ///
    /// Without the quota, an interval bucket has the units that it had when it was last written, and a sliding window is
    /// exact to a millisecond of its period. A sliding log has all units that it holds.
    pub(super) fn spent(&self, now_us: u64, expires_us: u64, quota: Option<&Quota>) -> u64 {
        match self {
            Self::Bucket { full_us, part, pace } => bucket(full_us.saturating_sub(now_us), *part, *pace, quota),
            Self::IntervalBucket { start_us, missing } => {
                let fills = quota.map_or(0, |quota| {
                    (now_us.saturating_sub(*start_us) / period_us(quota)).saturating_mul(quota.amount())
                });
                missing.saturating_sub(fills)
            }
            Self::Window { start_us, count, period_us } => {
                if now_us < start_us.saturating_add(*period_us) {
                    *count
                } else {
                    0
                }
            }
            Self::SlidingWindow { start_us, current, previous } => {
                // The key expires at the end of the next window.
                let guessed = expires_us.saturating_sub(*start_us) / if *current == 0 { 1 } else { 2 };
                let period_us = quota.map_or(guessed, period_us).max(1);
                sliding_window(now_us.saturating_sub(*start_us), period_us, *current, *previous)
            }
            Self::SlidingBuckets { width_us, buckets } => {
                let newest = buckets.last().map_or(0, |(at, _)| *at);
                // The key expires within a millisecond after the newest bucket stops to count.
                let guessed = (expires_us / width_us).saturating_sub(newest + 1);
                let count = quota.map_or(guessed, |quota| period_us(quota).div_ceil(*width_us));
                let first = newest.max(now_us / width_us).saturating_sub(count);
                buckets.iter().filter(|(at, _)| *at >= first).map(|(_, units)| units).sum()
            }
            Self::SlidingLog { units } => *units,
        }
    }
}

pub(super) fn period_us(quota: &Quota) -> u64 {
    u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX).max(1)
}

/// Returns the units missing in a bucket that is full after `ahead` microseconds and a part of one.
fn bucket(ahead: u64, part: u64, pace: f64, quota: Option<&Quota>) -> u64 {
    if let Some(quota) = quota {
        let (amount, period) = (u128::from(quota.amount()), u128::from(period_us(quota)));
        // The part counts parts of a microsecond of the quota that wrote it.
        if (period as f64 / amount as f64).to_bits() == pace.to_bits() && u128::from(part) < amount {
            let used = u128::from(ahead) * amount + u128::from(part);
            return u64::try_from(used.div_ceil(period)).unwrap_or(u64::MAX);
        }
    }
    // The tolerance keeps a whole number that the division made a little larger.
    (ahead as f64 / pace - 1e-9).ceil().max(0.0) as u64
}

/// Returns the units that count: those of the current window, and the share of the window before that is still inside.
fn sliding_window(after_us: u64, period_us: u64, current: u64, previous: u64) -> u64 {
    match after_us / period_us {
        0 => current + share(previous, period_us - after_us, period_us),
        1 => share(current, 2 * period_us - after_us, period_us),
        _ => 0,
    }
}

fn share(units: u64, left_us: u64, period_us: u64) -> u64 {
    let share = (u128::from(units) * u128::from(left_us)).div_ceil(u128::from(period_us));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Splits a value into its first doubles and the rest.
fn doubles<const N: usize>(value: &[u8]) -> Option<([f64; N], &[u8])> {
    let (words, rest) = value.split_at_checked(8 * N)?;
    let (words, _) = words.as_chunks::<8>();
    let mut doubles = [0.0; N];
    for (double, word) in doubles.iter_mut().zip(words) {
        *double = f64::from_le_bytes(*word);
    }
    Some((doubles, rest))
}

/// Reads a whole number.
fn whole(double: f64) -> Option<u64> {
    ((0.0..EXACT).contains(&double) && double.fract() == 0.0).then_some(double as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(numbers: &[f64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn values_that_no_script_writes_are_refused() {
        for kind in
            [Kind::TokenBucket, Kind::IntervalBucket, Kind::FixedWindow, Kind::SlidingWindow, Kind::SlidingBuckets]
        {
            for value in [&b""[..], b"1", b"hello world", &[0xFF; 24], &[0; 7], &packed(&[-1.0, 0.5, f64::NAN])] {
                assert_eq!(Stored::decode(kind, value), None, "{kind:?}");
            }
        }
    }

    #[test]
    fn numbers_of_buckets_are_completed_from_the_newest() {
        let mut value = packed(&[1e6, 65_537.0, 9.0]);
        for (at, units) in [(65_535_u64, 4_u32), (65_537, 5)] {
            value.extend((at as u16).to_le_bytes());
            value.extend(units.to_le_bytes());
        }
        let stored = Stored::decode(Kind::SlidingBuckets, &value).unwrap();
        let buckets = vec![(65_535, 4), (65_537, 5)];
        assert_eq!(stored, Stored::SlidingBuckets { width_us: 1_000_000, buckets });
        // Two buckets count beside the current one.
        let (second, quota) = (1_000_000, Quota::new(10, std::time::Duration::from_secs(2)));
        assert_eq!(stored.spent(65_537 * second, 65_540 * second, Some(&quota)), 9);
        assert_eq!(stored.spent(65_537 * second, 65_540 * second, None), 9);
        assert_eq!(stored.spent(65_538 * second, 65_540 * second, None), 5);
    }
}
