//! The algorithms, as pure functions of a state, the current time and a cost.
//!
//! The in-process store runs them, and the tests compare the Lua scripts with them bit for bit.
//! Each algorithm has a row in the [table], a file here and a file in `scripts/`, both with the
//! same five steps, see [`Meter`]:
//!
//! 1. *settle* brings a stored state to the current time and to the current quota;
//! 2. *fits* tests whether a cost fits;
//! 3. *charge* spends a cost;
//! 4. *refund* returns a cost;
//! 5. *words* returns the few integers from which [`numbers()`] derives what the caller sees.
//!
//! Two more steps belong to reservations: *owe* charges a cost that does not fit, see [`debt`], and
//! *remember* keeps what a late refund has to know, see [`trace`].
//!
//! A settled state is stored when it was charged, and when it had to be *mended*: when it was
//! impossibly far ahead of the clock, or was written under another quota. In all other cases it is
//! dropped, so that a denial and a peek change nothing.
//!
//! States of fixed size are copied to be settled. States that grow with the quota are on the heap
//! and are moved out instead. Settling only counts their expired entries. The entries themselves
//! are removed by the next charge.
//!
//! To add an algorithm, take `window_from_first_hit` as the example, or `lockout`, whose state,
//! numbers and words are its own. The compiler asks for the steps that are missing:
//!
//! 1. The function: a file here, with the state, [`Meter`], the numbers, and the bytes both ways.
//!    The bound that the laws check is a row of `bound` in `tests/support/src/policies.rs`.
//! 2. The script: `scripts/NAME.lua`, with the header that the others have, and the sections that
//!    `shared.lua` has not. `CONTRIBUTING.md` says how to bless it.
//! 3. The row below, and `mod NAME;` above it, which rules, command, laws and streams read. The
//!    line of the script in `redis/protocol/script/sources.rs`.
//! 4. The constructor in `model/policy/constructors.rs`, with an example that asserts.
//! 5. The documents: `docs/algorithms.md`, the tables of the guide and of `scripts/README.md`, a
//!    picture of the traffic in `tests/tests/scripts/pictures.rs`, and `CHANGELOG.md`, also under
//!    *Scripts*.
//!
//! Beside that: its arguments in `text.rs`, a limit of the quota in `model/policy/validity.rs`,
//! numbers that depend on the time in `redis/protocol/script/parts.rs`, a new form of
//! `StoredState`, and the mutants of its Lua in `tests/tests/scripts/mutations.rs`.
//!
//! How several policies are charged together is not here but in `store/step.rs`.

#[macro_use]
mod table;

#[cfg(feature = "calendar")]
mod calendar_window;
mod debt;
mod fixed_window;
mod inspect;
mod interval_bucket;
mod leaky_bucket;
mod lockout;
mod meter;
mod rate;
mod sliding_buckets;
mod sliding_log;
mod sliding_window;
mod state;
pub(crate) mod stored;
#[cfg(test)]
mod tests;
mod text;
mod token_bucket;
mod trace;
mod window;
mod window_from_first_hit;

pub use inspect::StoredState;
pub(crate) use lockout::LockTimes;
use meter::Meter;
pub(crate) use meter::Refund;
pub(crate) use sliding_buckets::Buckets;
pub(crate) use state::Settled;
use table::{Facts, Row};
pub(crate) use table::{
    Numbers, PolicyLevel, Words, delay_us, end_of, numbers, period_us, unspent,
};
pub(crate) use table::{args, ceiling_args, later, lowered, most_spent};

// A row has the documentation, the variant with a sample of its arguments, the name of its files
// (`NAME.rs` here and `scripts/NAME.lua`), the tag of its layout, and its `Facts`. Whoever lists
// algorithms, or distinguishes them, reads them here.
table! { $
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
    pub enum Algorithm;

    /// Holds up to b units and gains n units per W continuously.
    ///
    /// The bucket starts full. Bursts pass, and the average rate holds. See
    /// [`Policy::token_bucket`](crate::Policy::token_bucket).
    ///
    /// The state is one time, as in the generic cell rate algorithm (GCRA) of ITU-T I.371, which is
    /// mathematically the same.
    #[doc(alias = "gcra")]
    #[doc(alias = "replenish rate")]
    TokenBucket => token_bucket::TokenBucketState, "t1",
        Facts { is_parted: true, ..Facts::VIRTUAL };

    /// Adds n units at once every period W, up to b.
    ///
    /// The bucket starts full. The first refill comes W after the first request, and further
    /// refills follow every W until the bucket is full again. See
    /// [`Policy::interval_bucket`](crate::Policy::interval_bucket).
    #[doc(alias = "burst fill")]
    #[doc(alias = "refill at intervals")]
    IntervalBucket => interval_bucket::IntervalBucketState, "i1",
        Facts::BUCKET;

    /// Queues up to b units and releases one unit every W/n.
    ///
    /// An admitted request gets a [`Decision::delay`](crate::Decision::delay), and should start
    /// only after it. A full bucket denies. See
    /// [`Policy::leaky_bucket`](crate::Policy::leaky_bucket).
    #[doc(alias = "queue")]
    #[doc(alias = "traffic shaping")]
    LeakyBucket => leaky_bucket::Bucket, "l1",
        Facts { is_queue: true, is_leasable: false, ..Facts::VIRTUAL };

    /// Counts units in windows that start at multiples of W since the Unix epoch.
    ///
    /// All clients get their new quota at the same moment. See
    /// [`Policy::fixed_window`](crate::Policy::fixed_window).
    FixedWindow => fixed_window::FixedWindowState, "f1",
        Facts::WINDOW;

    /// Counts units in periods of the calendar: local days, weeks, months or years.
    ///
    /// The period of the quota is the [nominal](crate::CalendarUnit::nominal) length of the unit, or
    /// with an anchor so many times that. Needs the feature `calendar`. See
    /// [`Policy::calendar_window`](crate::Policy::calendar_window) and
    /// [`Policy::with_anchor`](crate::Policy::with_anchor).
    ["calendar"] CalendarWindow {
        /// Sets the period.
        unit: crate::CalendarUnit = crate::CalendarUnit::Month,
        /// Sets the time zone in which the periods begin.
        zone: crate::TimeZone = crate::TimeZone::UTC,
        /// Sets the local time at which the periods begin. `None` for the first midnight of the
        /// unit.
        anchor: Option<crate::Anchor> = None,
    } => calendar_window::CalendarWindowState, "c1",
        Facts {
            parse: Some(calendar_window::parse),
            ..Facts::WINDOW
        };

    /// Counts units in a window of length W that opens with the first request of a key.
    ///
    /// It counts as `INCR` with `EXPIRE` does. See
    /// [`Policy::window_from_first_hit`](crate::Policy::window_from_first_hit).
    WindowFromFirstHit => window_from_first_hit::WindowFromFirstHitState, "h1",
        Facts::WINDOW;

    /// Counts the current window in full, and the previous window in proportion to its part within
    /// the last W.
    ///
    /// The windows start at multiples of W since the Unix epoch. n is at most 4 294 967 295. See
    /// [`Policy::sliding_window`](crate::Policy::sliding_window).
    #[doc(alias = "sliding window counter")]
    #[doc(alias = "two counters")]
    SlidingWindow => sliding_window::SlidingWindowState, "w1",
        Facts { words: 3, ..Facts::WINDOW };

    /// Divides W into m sub-windows and counts the current one and the m before it in full.
    ///
    /// The sub-windows are ⌈W/m⌉ µs wide and aligned to the clock. n is at most 4 294 967 295,
    /// because each sub-window takes four bytes. See
    /// [`Policy::sliding_buckets`](crate::Policy::sliding_buckets).
    SlidingBuckets {
        /// Sets the number of sub-windows, m: 1 to 1000, and at most the microseconds in W.
        buckets: u16 = 10,
    } => sliding_buckets::SlidingBucketsState, "b1",
        Facts {
            words: 4,
            parse: Some(sliding_buckets::parse),
            ..Facts::WINDOW
        };

    /// Stores the time of every admitted unit.
    ///
    /// n is at most 100 000, because each unit takes about 11 bytes in Redis. See
    /// [`Policy::sliding_log`](crate::Policy::sliding_log).
    SlidingLog => sliding_log::SlidingLogState, "s1",
        Facts { words: 4, is_tagged: true, ..Facts::WINDOW };

    /// Denies for a time after n failures in a window of length W, which opens with the first
    /// failure.
    ///
    /// Each lockout lasts twice as long as the one before, up to the longest. See
    /// [`Policy::lockout`](crate::Policy::lockout).
    #[doc(alias = "ban")]
    #[doc(alias = "brute force")]
    Lockout {
        /// Sets the time of the first lockout: 1 µs to 3650 days.
        first: std::time::Duration = std::time::Duration::from_secs(60),
        /// Sets the longest time of a lockout, and the time after which lockouts are forgotten:
        /// `first` to 3650 days.
        longest: std::time::Duration = std::time::Duration::from_secs(3_600),
    } => lockout::LockoutState, "k1",
        Facts {
            words: 4,
            is_leasable: false,
            parse: Some(lockout::parse),
            ..Facts::WINDOW
        };
}

#[allow(
    clippy::single_component_path_imports,
    reason = "the files of this folder import the macros by their path"
)]
use {by_algorithm, by_state};
