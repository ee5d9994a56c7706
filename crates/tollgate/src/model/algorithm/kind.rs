/// Selects how a [`Policy`](crate::Policy) meters its quota.
///
/// In the table, n is the amount of the quota, W its period, b its burst and m the number of
/// buckets. L is the length of any interval, including its start and excluding its end. A client
/// that times its requests can reach each bound.
///
/// Each algorithm is exact up to its largest n. Larger quotas are refused by
/// [`Policy::try_new`](crate::Policy::try_new) and its siblings. n and b are at most
/// 999 999 999 999 999 (10¹⁵ − 1) for the buckets and the windows, 4 294 967 295 (2³² − 1) for the
/// sliding window and the sliding buckets, and 100 000 for the sliding log.
///
/// | algorithm | most units admitted | stored per key | use it for |
/// |---|---|---|---|
/// | [`TokenBucket`](Self::TokenBucket) | b + ⌊n·L/W⌋ in L | one time | most limits |
/// | [`IntervalBucket`](Self::IntervalBucket) | b − 1 + n·⌈L/W⌉ in L | one time, one count | "wait for the next refill" |
/// | [`LeakyBucket`](Self::LeakyBucket) | one per W/n, b waiting | one time | even spacing |
/// | [`FixedWindow`](Self::FixedWindow) | 2n in W | one time, one count | calendar quotas |
/// | `CalendarWindow`, feature `calendar` | n in a local day, week, month or year | two times, one count | quotas that people read |
/// | [`WindowFromFirstHit`](Self::WindowFromFirstHit) | 2n − 1 in W | one time, one count | matching `INCR` + `EXPIRE` |
/// | [`SlidingWindow`](Self::SlidingWindow) | 2n − 1 in W, near n for even traffic | one time, two counts | large limits |
/// | [`SlidingBuckets`](Self::SlidingBuckets) | n in W | up to m + 1 counts | strict limits |
/// | [`SlidingLog`](Self::SlidingLog) | n in W | up to n times | small strict limits, audit |
///
/// ```
/// use tollgate::{Algorithm, Policy, Quota};
///
/// let policy = Policy::try_new("api", Algorithm::TokenBucket, Quota::per_second(20))?;
/// assert_eq!(policy.algorithm(), Algorithm::TokenBucket);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Holds up to b units and gains n units per W continuously.
    ///
    /// The bucket starts full. Bursts pass, and the average rate holds. See
    /// [`Policy::token_bucket`](crate::Policy::token_bucket).
    ///
    /// The state is one time, as in the generic cell rate algorithm (GCRA) of ITU-T I.371, which is
    /// mathematically the same.
    #[doc(alias = "gcra")]
    #[doc(alias = "replenish rate")]
    TokenBucket,
    /// Adds n units at once every period W, up to b.
    ///
    /// The bucket starts full. The first refill comes W after the first request, and further
    /// refills follow every W until the bucket is full again. See
    /// [`Policy::interval_bucket`](crate::Policy::interval_bucket).
    #[doc(alias = "burst fill")]
    #[doc(alias = "refill at intervals")]
    IntervalBucket,
    /// Queues up to b units and releases one unit every W/n.
    ///
    /// An admitted request is given a [`Decision::delay`](crate::Decision::delay) and should start
    /// only after it. A full bucket denies. See
    /// [`Policy::leaky_bucket`](crate::Policy::leaky_bucket).
    #[doc(alias = "queue")]
    #[doc(alias = "traffic shaping")]
    LeakyBucket,
    /// Counts units in windows that start at multiples of W since the Unix epoch.
    ///
    /// All clients get their new quota at the same moment. See
    /// [`Policy::fixed_window`](crate::Policy::fixed_window).
    FixedWindow,
    /// Counts units in periods of the calendar: local days, weeks, months or years.
    ///
    /// The period of the quota is the [nominal](crate::CalendarUnit::nominal) length of the unit. Needs the feature
    /// `calendar`. See [`Policy::calendar_window`](crate::Policy::calendar_window).
    #[cfg(feature = "calendar")]
    CalendarWindow {
        /// Sets the period.
        unit: crate::CalendarUnit,
        /// Sets the time zone in which the periods begin.
        zone: crate::TimeZone,
    },
    /// Counts units in a window of length W that opens with the first request of a key.
    ///
    /// It counts as `INCR` with `EXPIRE` does. See
    /// [`Policy::window_from_first_hit`](crate::Policy::window_from_first_hit).
    WindowFromFirstHit,
    /// Counts the current window in full and the previous window by the share still within W.
    ///
    /// The windows start at multiples of W since the Unix epoch. n is at most 4 294 967 295. See
    /// [`Policy::sliding_window`](crate::Policy::sliding_window).
    #[doc(alias = "sliding window counter")]
    #[doc(alias = "two counters")]
    SlidingWindow,
    /// Divides W into m sub-windows and counts the current one and the m before it in full.
    ///
    /// The sub-windows are ⌈W/m⌉ µs wide and aligned to the clock. n is at most 4 294 967 295,
    /// because each sub-window takes four bytes. See
    /// [`Policy::sliding_buckets`](crate::Policy::sliding_buckets).
    SlidingBuckets {
        /// Sets the number of sub-windows, m: 1 to 1000, and at most the microseconds in W.
        buckets: u16,
    },
    /// Stores the time of every admitted unit.
    ///
    /// n is at most 100 000, because each unit takes about 11 bytes in Redis. See
    /// [`Policy::sliding_log`](crate::Policy::sliding_log).
    SlidingLog,
}

impl Algorithm {
    /// Returns the letter and the storage version at the end of a Redis key. Another algorithm, or
    /// another layout of the state, uses another key.
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Self::TokenBucket => "t1",
            Self::IntervalBucket => "i1",
            Self::LeakyBucket => "l1",
            Self::FixedWindow => "f1",
            #[cfg(feature = "calendar")]
            Self::CalendarWindow { .. } => "c1",
            Self::WindowFromFirstHit => "h1",
            Self::SlidingWindow => "w1",
            Self::SlidingBuckets { .. } => "b1",
            Self::SlidingLog => "s1",
        }
    }

    /// Returns `true` when this algorithm can read a state written under `other`.
    pub(crate) fn reads(self, other: Self) -> bool {
        self.tag() == other.tag()
    }

    /// Lists every algorithm, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const ALL: [Self; 8] = [
        Self::TokenBucket,
        Self::IntervalBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::WindowFromFirstHit,
        Self::SlidingWindow,
        Self::SlidingBuckets { buckets: 10 },
        Self::SlidingLog,
    ];

    /// Returns the number of words of a level.
    pub(crate) const fn words(self) -> usize {
        match self {
            Self::TokenBucket
            | Self::LeakyBucket
            | Self::IntervalBucket
            | Self::FixedWindow
            | Self::WindowFromFirstHit => 2,
            #[cfg(feature = "calendar")]
            Self::CalendarWindow { .. } => 2,
            Self::SlidingWindow => 3,
            Self::SlidingBuckets { .. } | Self::SlidingLog => 4,
        }
    }

    /// Returns `true` when the quota may have a burst that differs from its amount.
    pub(crate) const fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::IntervalBucket | Self::LeakyBucket)
    }

    /// Returns `true` when the tag of a check is stored.
    #[cfg(feature = "redis")]
    pub(crate) const fn is_tagged(self) -> bool {
        matches!(self, Self::SlidingLog)
    }

    /// Returns `true` when a refund depends on the time until the bucket is full, as it was after the request. `is_capped`
    /// is true when the request had a ceiling: an interval bucket that went into debt has given out places.
    #[cfg(feature = "redis")]
    pub(crate) const fn is_queued(self, is_capped: bool) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket) || is_capped && self.has_burst()
    }

    /// Returns `true` when the second word of a level is a part of the first one: zero where the amount divides the period.
    #[cfg(feature = "redis")]
    pub(crate) const fn is_parted(self) -> bool {
        matches!(self, Self::TokenBucket)
    }

    /// Returns `true` when units return one by one, so that n per W and 2n per 2W are the same rate.
    pub(crate) const fn is_continuous(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }
}
