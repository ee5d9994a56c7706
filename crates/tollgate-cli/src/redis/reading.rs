//! Computes the units spent between two readings of a state.
//! When a state is read is decided in `watch/tracker.rs`, its bytes are decoded by the core.

use tollgate::{Quota, store::StoredState};

/// Shows what a server has under the key of a state.
pub(super) enum Looked {
    /// Nothing: the state has expired.
    Nothing,
    /// The value of another program.
    Foreign,
    State {
        stored: StoredState,
        /// The milliseconds until it expires.
        expires_ms: u64,
        /// The time of the unit of a log that has to leave before one more fits.
        marked_us: Option<u64>,
    },
}

/// A state, as a scan has read it.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    stored: StoredState,
    /// The units that were spent at that moment.
    spent: u64,
    /// The server's time, in microseconds since the Unix epoch.
    at_us: u64,
}

impl Reading {
    pub(super) fn new(stored: StoredState, spent: u64, at_us: u64) -> Self {
        Self {
            stored,
            spent,
            at_us,
        }
    }

    /// Returns the state, and the server's time at which it was read, in microseconds since the
    /// Unix epoch.
    pub(super) fn stored(&self) -> (&StoredState, u64) {
        (&self.stored, self.at_us)
    }

    /// Returns the units that were spent since an earlier reading of the same state, at least.
    ///
    /// Redis stores no total. Units are missed that were spent and have left the state again
    /// between the two readings: of a bucket that was full in between, and of a window that began
    /// and ended. Without an earlier reading, the units count that the state has now. Refunded
    /// units are subtracted.
    pub(crate) fn spent_since(&self, before: Option<&Self>, quota: Option<&Quota>) -> u64 {
        let Some(before) = before else {
            return self.spent;
        };
        match (&before.stored, &self.stored) {
            (a, b) if a == b => 0,
            (
                StoredState::Bucket {
                    full_us: a,
                    pace: a_pace,
                    ..
                },
                StoredState::Bucket {
                    full_us: b,
                    pace: b_pace,
                    ..
                },
            ) if a_pace.to_bits() == b_pace.to_bits() => {
                // A unit moves the moment at which the bucket is full by the pace.
                if *a >= self.at_us {
                    (b.saturating_sub(*a) as f64 / b_pace).round() as u64
                } else {
                    self.spent
                }
            }
            (
                StoredState::IntervalBucket {
                    start_us: a_start,
                    missing: a,
                },
                StoredState::IntervalBucket {
                    start_us: b_start,
                    missing: b,
                },
            ) => {
                let fills = |quota: &Quota| {
                    let fills = u128::from(b_start.saturating_sub(*a_start))
                        / quota.period().as_micros().max(1);
                    u64::try_from(fills)
                        .unwrap_or(u64::MAX)
                        .saturating_mul(quota.amount())
                };
                b.saturating_sub(a.saturating_sub(quota.map_or(0, fills)))
            }
            (
                StoredState::Window {
                    start_us: a_start,
                    count: a,
                    ..
                },
                StoredState::Window {
                    start_us: b_start,
                    count: b,
                    ..
                },
            ) => b.saturating_sub(if a_start == b_start { *a } else { 0 }),
            (
                StoredState::SlidingWindow {
                    start_us: a_start,
                    current: a,
                    ..
                },
                StoredState::SlidingWindow {
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
                StoredState::SlidingBuckets {
                    width_us: a_width,
                    buckets: a,
                },
                StoredState::SlidingBuckets {
                    width_us: b_width,
                    buckets: b,
                },
            ) if a_width == b_width => {
                let earlier = |at: u64| {
                    a.iter()
                        .find(|(other, _)| *other == at)
                        .map_or(0, |(_, units)| *units)
                };
                b.iter()
                    .map(|(at, units)| units.saturating_sub(earlier(*at)))
                    .sum()
            }
            (StoredState::SlidingLog { units: a }, StoredState::SlidingLog { units: b }) => {
                b.saturating_sub(*a)
            }
            // The quota has changed.
            _ => self.spent.saturating_sub(before.spent),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn since(
        before: (StoredState, u64, u64),
        after: (StoredState, u64, u64),
        quota: Option<Quota>,
    ) -> u64 {
        let [before, after] =
            [before, after].map(|(stored, spent, at)| Reading::new(stored, spent, at * SECOND));
        after.spent_since(Some(&before), quota.as_ref())
    }

    /// Returns a bucket with one unit for each second.
    fn bucket(full: u64) -> StoredState {
        StoredState::Bucket {
            full_us: full * SECOND,
            part: 0,
            pace: 1e6,
        }
    }

    #[test]
    fn units_of_a_bucket_count_also_when_as_many_have_flowed_back() {
        // Five units are missing at both moments, and two seconds have passed.
        assert_eq!(since((bucket(105), 5, 100), (bucket(107), 5, 102), None), 2);
        assert_eq!(
            since((bucket(105), 5, 100), (bucket(105), 3, 102), None),
            0,
            "nothing was spent"
        );
        assert_eq!(
            since((bucket(105), 5, 100), (bucket(104), 2, 102), None),
            0,
            "a unit was refunded"
        );
        // It was full in between, so only the units count that it still lacks.
        assert_eq!(since((bucket(101), 1, 100), (bucket(107), 5, 102), None), 5);
        assert_eq!(
            Reading::new(bucket(105), 5, 100 * SECOND).spent_since(None, None),
            5,
            "the state is new"
        );
    }

    #[test]
    fn units_of_windows_count_across_their_end() {
        let window = |start, count| StoredState::Window {
            start_us: start * SECOND,
            count,
            period_us: 10 * SECOND,
        };
        assert_eq!(since((window(0, 5), 5, 1), (window(0, 8), 8, 3), None), 3);
        assert_eq!(since((window(0, 5), 5, 9), (window(10, 2), 2, 11), None), 2);
        let sliding = |start, current, previous| StoredState::SlidingWindow {
            start_us: start * SECOND,
            current,
            previous,
        };
        assert_eq!(
            since((sliding(0, 5, 9), 9, 9), (sliding(0, 6, 9), 9, 9), None),
            1
        );
        // Two units more in the window that has ended, and four in the next.
        assert_eq!(
            since((sliding(0, 5, 9), 9, 9), (sliding(10, 4, 7), 9, 11), None),
            6
        );
        let buckets = |units: &[(u64, u64)]| StoredState::SlidingBuckets {
            width_us: SECOND,
            buckets: units.to_vec(),
        };
        assert_eq!(
            since(
                (buckets(&[(1, 5), (2, 1)]), 6, 2),
                (buckets(&[(2, 4), (3, 2)]), 6, 3),
                None
            ),
            5
        );
        assert_eq!(
            since(
                (StoredState::SlidingLog { units: 3 }, 3, 1),
                (StoredState::SlidingLog { units: 5 }, 5, 2),
                None
            ),
            2
        );
    }

    #[test]
    fn an_interval_bucket_counts_its_fills_when_the_quota_is_known() {
        let state = |start, missing| StoredState::IntervalBucket {
            start_us: start * SECOND,
            missing,
        };
        let quota = Some(Quota::new(4, Duration::from_secs(1)));
        // Two fills of four units have come, so five new units are missing.
        assert_eq!(since((state(0, 9), 9, 1), (state(2, 6), 6, 2), quota), 5);
        assert_eq!(since((state(0, 9), 9, 1), (state(2, 6), 6, 2), None), 0);
    }
}
