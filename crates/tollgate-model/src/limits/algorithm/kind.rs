//! The algorithms: what each does, and what it is for.
//! What other code has to know of an algorithm is in `table.rs`, and how it does it in the file of
//! its name.

use std::time::Duration;

/// Selects how a [`Policy`](crate::Policy) meters its quota.
///
/// In the table, n is the amount of the quota, W its period, b its burst and m the number of
/// buckets. L is the length of any interval, including its start and excluding its end. A
/// client that times its requests can reach each bound.
///
/// Each algorithm is exact up to its largest n. Larger quotas are refused by
/// [`Policy::try_new`](crate::Policy::try_new) and its siblings. n and b are at most 999 999
/// 999 999 999 (10¹⁵ − 1) for the buckets and the windows, 4 294 967 295 (2³² − 1) for the
/// sliding window and the sliding buckets, and 100 000 for the sliding log.
///
/// | algorithm | most units admitted | stored per key | use it for |
/// |---|---|---|---|
/// | [`TokenBucket`](Self::TokenBucket) | b + ⌊n·L/W⌋ in L | one time | most limits |
/// | [`IntervalBucket`](Self::IntervalBucket) | b − 1 + n·⌈L/W⌉ in L | one time, one count | "wait for the next refill" |
/// | [`LeakyBucket`](Self::LeakyBucket) | one per W/n, b waiting | one time | even spacing |
/// | [`FixedWindow`](Self::FixedWindow) | 2n in W | one time, one count | n per UTC hour or day |
/// | `CalendarWindow`, feature `calendar` | n in a local day, week, month or year, or one of the customer's | two times, one count | quotas that people read |
/// | [`WindowFromFirstHit`](Self::WindowFromFirstHit) | 2n − 1 in W | one time, one count | matching `INCR` + `EXPIRE` |
/// | [`SlidingWindow`](Self::SlidingWindow) | 2n − 1 in W, near n for even traffic | one time, two counts | large limits |
/// | [`SlidingBuckets`](Self::SlidingBuckets) | n in W | up to m + 1 counts | strict limits |
/// | [`SlidingLog`](Self::SlidingLog) | n in W | up to n times | small strict limits, audit |
/// | [`Lockout`](Self::Lockout) | 2n − 1 in W, n in a lockout | three times, two counts | failed log-ins |
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
    /// An admitted request gets a [`Decision::delay`](crate::Decision::delay), and should start
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
    /// The period of the quota is the [nominal](crate::CalendarUnit::nominal) length of the unit, or
    /// with an anchor so many times that. Needs the feature `calendar`. See
    /// [`Policy::calendar_window`](crate::Policy::calendar_window) and
    /// [`Policy::with_anchor`](crate::Policy::with_anchor).
    #[cfg(feature = "calendar")]
    CalendarWindow {
        /// Sets the period.
        unit: crate::CalendarUnit,
        /// Sets the time zone in which the periods begin.
        zone: crate::TimeZone,
        /// Sets the local time at which the periods begin. `None` for the first midnight of the
        /// unit.
        anchor: Option<crate::Anchor>,
    },

    /// Counts units in a window of length W that opens with the first request of a key.
    ///
    /// It counts as `INCR` with `EXPIRE` does. See
    /// [`Policy::window_from_first_hit`](crate::Policy::window_from_first_hit).
    WindowFromFirstHit,

    /// Counts the current window in full, and the previous window in proportion to its part within
    /// the last W.
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

    /// Denies for a time after n failures in a window of length W, which opens with the first
    /// failure.
    ///
    /// Each lockout lasts twice as long as the one before, up to the longest. See
    /// [`Policy::lockout`](crate::Policy::lockout).
    #[doc(alias = "ban")]
    #[doc(alias = "brute force")]
    Lockout {
        /// Sets the time of the first lockout: 1 µs to 3650 days.
        first: Duration,
        /// Sets the longest time of a lockout, and the time after which lockouts are forgotten:
        /// `first` to 3650 days.
        longest: Duration,
    },
}
