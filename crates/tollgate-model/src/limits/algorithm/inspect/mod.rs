//! The values of states, as the scripts store them: for tools that look into the server.
//! Decisions never read it: those use the state of each algorithm itself. Bytes are read in
//! `state.rs`.

use std::time::Duration;

use crate::Quota;

/// The state of a policy for a key, read from the value that Redis stores.
///
/// For tools that look into the server. A service asks [`Limiter::peek`],
/// which knows the quota. The last part of a key of Redis is the *tag* of its layout: `t1` of
/// `tollgate:{acme}:api:t1`. The layouts stand in the headers of `scripts/*.lua`. Times are in
/// microseconds since the Unix epoch, by the server's clock.
///
/// A state in debt is stored with a mark. It is read like any other: what is spent exceeds the
/// quota then.
///
/// ```
/// use tollgate::{Quota, store::StoredState};
///
/// // A bucket of 100 units per second that is full 5 s after the year 2000 began: a debt of 400, with its mark.
/// let full_us = 946_684_805_000_000_u64;
/// let value: Vec<u8> = [full_us as f64, 1e15, 1e4].iter().flat_map(|number| number.to_le_bytes()).collect();
///
/// let state = StoredState::decode("t1", &value).expect("a state of a token bucket");
/// let (now_us, expires_us) = (full_us - 5_000_000, full_us + 1_000_000);
/// assert_eq!(state.spent(now_us, expires_us, Some(&Quota::per_second(100))), 500);
/// assert_eq!(StoredState::decode("t1", b"hello"), None);
/// ```
///
/// [`Limiter::peek`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.peek
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StoredState {
    /// A token bucket (`t1`) or a leaky bucket (`l1`).
    Bucket {
        /// The time at which the bucket is full.
        full_us: u64,
        /// The rest of that time, in parts of a microsecond: as many as the amount of the quota
        /// that wrote it.
        part: u64,
        /// The microseconds in which a unit returns.
        pace: f64,
    },
    /// An interval bucket (`i1`).
    IntervalBucket {
        /// The start of the period.
        start_us: u64,
        /// The units that are missing.
        missing: u64,
    },
    /// A fixed window (`f1`), a window from the first hit (`h1`) or a calendar window (`c1`).
    Window {
        /// The start of the window.
        start_us: u64,
        /// The units that are spent in it.
        count: u64,
        /// Its length.
        period_us: u64,
    },
    /// A sliding window (`w1`).
    SlidingWindow {
        /// The start of the window.
        start_us: u64,
        /// The units that are spent in it.
        current: u64,
        /// The units that were spent in the one before.
        previous: u64,
    },
    /// Sliding buckets (`b1`).
    SlidingBuckets {
        /// The length of a bucket.
        width_us: u64,
        /// The number of each bucket that is in use, and its units.
        buckets: Vec<(u64, u64)>,
    },
    /// A sliding log (`s1`), which is stored as a list.
    SlidingLog {
        /// The entries of the log.
        units: u64,
    },
    /// A lockout (`k1`).
    Lockout {
        /// The end of the lockout. For a key that is not locked: the end of the window in which the
        /// failures count.
        until_us: u64,
        /// The failures that count.
        failures: u64,
        /// The number of lockouts that have ended and are not forgotten yet.
        lockouts: u64,
    },
}

impl StoredState {
    /// Returns the units that are spent at `now_us`. The key expires at `expires_us`.
    ///
    /// Without the quota, an interval bucket has the units that it had when it was last written,
    /// and a sliding window is exact to a millisecond of its period. A sliding log has all units
    /// that it holds.
    #[must_use]
    pub fn spent(&self, now_us: u64, expires_us: u64, quota: Option<&Quota>) -> u64 {
        match self {
            Self::Bucket {
                full_us,
                part,
                pace,
            } => bucket(full_us.saturating_sub(now_us), *part, *pace, quota),
            Self::IntervalBucket { start_us, missing } => {
                let fills = quota.map_or(0, |quota| {
                    (now_us.saturating_sub(*start_us) / period_us(quota))
                        .saturating_mul(quota.amount())
                });
                missing.saturating_sub(fills)
            }
            Self::Window {
                start_us,
                count,
                period_us,
            } => {
                if now_us < start_us.saturating_add(*period_us) {
                    *count
                } else {
                    0
                }
            }
            Self::SlidingWindow {
                start_us,
                current,
                previous,
            } => {
                // The key expires at the end of the next window.
                let guessed =
                    expires_us.saturating_sub(*start_us) / if *current == 0 { 1 } else { 2 };
                let period_us = quota.map_or(guessed, period_us).max(1);
                sliding_window(
                    now_us.saturating_sub(*start_us),
                    period_us,
                    *current,
                    *previous,
                )
            }
            Self::SlidingBuckets { width_us, buckets } => {
                let newest = buckets.last().map_or(0, |(at, _)| *at);
                // The key expires within a millisecond after the newest bucket stops to count.
                let guessed = (expires_us / width_us).saturating_sub(newest + 1);
                let count = quota.map_or(guessed, |quota| period_us(quota).div_ceil(*width_us));
                let first = newest.max(now_us / width_us).saturating_sub(count);
                buckets
                    .iter()
                    .filter(|(at, _)| *at >= first)
                    .map(|(_, units)| units)
                    .sum()
            }
            Self::SlidingLog { units } => *units,
            Self::Lockout {
                until_us, failures, ..
            } => {
                if now_us < *until_us {
                    *failures
                } else {
                    0
                }
            }
        }
    }

    /// Returns the units that were spent since an earlier look at the same state, at least. This
    /// state was read at `now_us`.
    ///
    /// No total is stored. Units are missed that were spent and have left the state again in
    /// between: of a bucket that was full once, of a window that began and ended, and without the
    /// quota those that an interval bucket got back. Refunded units are subtracted.
    ///
    /// `None` for two layouts, after a change of the quota, and for a lockout: compare what was
    /// [spent](Self::spent) at both times then.
    ///
    /// ```
    /// use tollgate::store::StoredState;
    ///
    /// // A bucket with one unit for each second. Five units are missing each time, and two came back.
    /// let full = |at: u64| StoredState::Bucket { full_us: at * 1_000_000, part: 0, pace: 1e6 };
    /// assert_eq!(full(107).spent_since(&full(105), 102_000_000, None), Some(2));
    /// ```
    #[must_use]
    pub fn spent_since(&self, before: &Self, now_us: u64, quota: Option<&Quota>) -> Option<u64> {
        Some(match (before, self) {
            (a, b) if a == b => 0,
            (
                Self::Bucket {
                    full_us: a,
                    pace: a_pace,
                    ..
                },
                Self::Bucket {
                    full_us: b, pace, ..
                },
            ) if a_pace.to_bits() == pace.to_bits() => {
                // A unit moves the moment at which the bucket is full by the pace.
                if *a >= now_us {
                    (b.saturating_sub(*a) as f64 / pace).round() as u64
                } else {
                    self.spent(now_us, now_us, quota)
                }
            }
            (
                Self::IntervalBucket {
                    start_us: a_start,
                    missing: a,
                },
                Self::IntervalBucket {
                    start_us: b_start,
                    missing: b,
                },
            ) => {
                let fills = quota.map_or(0, |quota| {
                    (b_start.saturating_sub(*a_start) / period_us(quota))
                        .saturating_mul(quota.amount())
                });
                b.saturating_sub(a.saturating_sub(fills))
            }
            (
                Self::Window {
                    start_us: a_start,
                    count: a,
                    ..
                },
                Self::Window {
                    start_us: b_start,
                    count: b,
                    ..
                },
            ) => b.saturating_sub(if a_start == b_start { *a } else { 0 }),
            (
                Self::SlidingWindow {
                    start_us: a_start,
                    current: a,
                    ..
                },
                Self::SlidingWindow {
                    start_us: b_start,
                    current: b,
                    previous,
                },
            ) => {
                if a_start == b_start {
                    b.saturating_sub(*a)
                } else {
                    b + previous.saturating_sub(*a)
                }
            }
            (
                Self::SlidingBuckets {
                    width_us: a_width,
                    buckets: a,
                },
                Self::SlidingBuckets {
                    width_us: b_width,
                    buckets: b,
                },
            ) if a_width == b_width => {
                let earlier = |at: u64| a.iter().find(|(other, _)| *other == at);
                let earlier = |at: u64| earlier(at).map_or(0, |(_, units)| *units);
                let added = |(at, units): &(u64, u64)| units.saturating_sub(earlier(*at));
                b.iter().map(added).sum()
            }
            (Self::SlidingLog { units: a }, Self::SlidingLog { units: b }) => b.saturating_sub(*a),
            _ => return None,
        })
    }

    /// Returns how long after `now_us` a check of `cost` units fits under `quota`, if nobody
    /// spends. Zero when the check fits at `now_us`.
    ///
    /// `None` for a cost above the burst, which never fits, and for a sliding log, whose times are
    /// entries of a list. The wait is exact when the state was written under this quota, or under
    /// one of the same rate.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, store::StoredState};
    ///
    /// // Eight of ten units are spent at the second 5 of the Unix epoch.
    /// let state = StoredState::Bucket { full_us: 5_800_000, part: 0, pace: 1e5 };
    /// let quota = Quota::per_second(10);
    /// assert_eq!(state.fits_after(5_000_000, 5, &quota), Some(Duration::from_millis(300)));
    /// assert_eq!(state.fits_after(5_000_000, 2, &quota), Some(Duration::ZERO));
    /// assert_eq!(state.fits_after(5_000_000, 11, &quota), None);
    /// ```
    #[must_use]
    pub fn fits_after(&self, now_us: u64, cost: u64, quota: &Quota) -> Option<Duration> {
        let room = quota.burst().checked_sub(cost)?;
        let (amount, period) = (quota.amount(), period_us(quota));
        let at_us = match self {
            Self::Bucket {
                full_us,
                part,
                pace,
            } => bucket_at(*full_us, *part, *pace, room, quota),
            Self::IntervalBucket { start_us, missing } => start_us.saturating_add(
                missing
                    .saturating_sub(room)
                    .div_ceil(amount)
                    .saturating_mul(period),
            ),
            Self::Window { count, .. } if *count <= room => now_us,
            Self::Window {
                start_us,
                period_us,
                ..
            } => start_us.saturating_add(*period_us),
            Self::SlidingWindow {
                start_us,
                current,
                previous,
            } => match room.checked_sub(*current) {
                Some(room) => start_us.saturating_add(share_us(*previous, room, period)),
                None => start_us
                    .saturating_add(period)
                    .saturating_add(share_us(*current, room, period)),
            },
            Self::SlidingBuckets { width_us, buckets } => {
                let leaves =
                    |at: u64| (at + period.div_ceil(*width_us) + 1).saturating_mul(*width_us);
                let alive = || buckets.iter().filter(|(at, _)| leaves(*at) > now_us);
                let mut over = alive()
                    .map(|(_, units)| units)
                    .sum::<u64>()
                    .saturating_sub(room);
                let last = alive().find(|(_, units)| {
                    over = over.saturating_sub(*units);
                    over == 0
                });
                let is_full = alive().map(|(_, units)| units).sum::<u64>() > room;
                last.filter(|_| is_full)
                    .map_or(now_us, |(at, _)| leaves(*at))
            }
            Self::SlidingLog { .. } => return None,
            Self::Lockout { failures, .. } if *failures <= room => now_us,
            Self::Lockout { until_us, .. } => *until_us,
        };
        Some(Duration::from_micros(at_us.saturating_sub(now_us)))
    }
}

/// Returns the time at which at most `room` units are missing in a bucket that is full at `tat_us`
/// and a part of a microsecond.
fn bucket_at(tat_us: u64, part: u64, interval: f64, room: u64, quota: &Quota) -> u64 {
    let (amount, period) = (i128::from(quota.amount()), i128::from(period_us(quota)));
    if (period as f64 / amount as f64).to_bits() == interval.to_bits() && i128::from(part) < amount
    {
        let back = (i128::from(room) * period - i128::from(part)).div_euclid(amount);
        return u64::try_from(i128::from(tat_us) - back).unwrap_or(0);
    }
    tat_us.saturating_sub((room as f64 * interval).floor() as u64)
}

/// Returns the microseconds after the start of a window from which on at most `room` of the units
/// of the one before count.
fn share_us(units: u64, room: u64, period_us: u64) -> u64 {
    let left = (u128::from(room) * u128::from(period_us)).checked_div(u128::from(units));
    let left = left
        .and_then(|left| u64::try_from(left).ok())
        .unwrap_or(u64::MAX);
    period_us.saturating_sub(left)
}

fn period_us(quota: &Quota) -> u64 {
    u64::try_from(quota.period().as_micros())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// Returns the units missing in a bucket that is full after `ahead` microseconds and a part of one.
fn bucket(ahead: u64, part: u64, interval: f64, quota: Option<&Quota>) -> u64 {
    if let Some(quota) = quota {
        let (amount, period) = (u128::from(quota.amount()), u128::from(period_us(quota)));
        // The part counts parts of a microsecond of the quota that wrote it.
        if (period as f64 / amount as f64).to_bits() == interval.to_bits()
            && u128::from(part) < amount
        {
            let used = u128::from(ahead) * amount + u128::from(part);
            return u64::try_from(used.div_ceil(period)).unwrap_or(u64::MAX);
        }
    }
    // The tolerance keeps a whole number that the division made a little larger.
    (ahead as f64 / interval - 1e-9).ceil().max(0.0) as u64
}

/// Returns the units that count: the current window, and the share of the window before that is
/// still inside.
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

#[cfg(test)]
mod tests;
