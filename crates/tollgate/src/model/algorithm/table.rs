//! The table of the algorithms: one row for each.
//!
//! A row has the documentation, the variant with a sample of its arguments, the name of its files (`NAME.rs` here and
//! `scripts/NAME.lua`), the tag of its layout, and its [`Facts`]. Whoever lists algorithms, or distinguishes them, reads the
//! table. The steps of an algorithm are in its file, see [`Meter`](super::Meter).

use std::fmt;

use super::sliding_buckets;
use crate::Error;

/// Includes one source file. Fails to compile when the file does not begin with its header: then a link was packed
/// instead of the file.
#[cfg(feature = "redis")]
macro_rules! source {
    ($($name:tt)+) => {{
        const TEXT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/", $($name)+, ".lua"));
        const { assert!(TEXT.as_bytes()[0] == b'-' && TEXT.as_bytes()[1] == b'-') };
        TEXT
    }};
}
#[cfg(feature = "redis")]
pub(crate) use source;

/// Holds what other code has to know of an algorithm.
#[derive(Debug)]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "the names of numbers are for the scripts"))]
pub(crate) struct Facts {
    /// The number of words of a level.
    pub(crate) words: usize,
    /// The names of the numbers of a policy in the script.
    pub(crate) args: &'static [&'static str],
    /// The names of the numbers of a ceiling in the script.
    pub(crate) ceiling: &'static [&'static str],
    /// The name of the number that is the ceiling of every other request.
    pub(crate) top: &'static str,
    /// Whether the quota may have a burst that differs from its amount.
    pub(crate) has_burst: bool,
    /// Whether units return one by one, so that n per W and 2n per 2W are the same rate.
    pub(crate) is_continuous: bool,
    /// Whether an admitted request waits for its turn.
    pub(crate) is_queue: bool,
    /// Whether a refund depends on the time until the bucket is full, as it was after the request.
    pub(crate) is_queued: bool,
    /// Whether the second word of a level is a part of the first one: zero where the amount divides the period.
    pub(crate) is_parted: bool,
    /// Whether the tag of a check is stored, in a list.
    pub(crate) is_tagged: bool,
    /// Whether exactly k times the amount accrues in k whole periods.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "the laws ask"))]
    pub(crate) accrues_exactly: bool,
    /// Reads the arguments of an algorithm that has some: from its whole text, and from what follows its name.
    pub(crate) parse: Option<fn(&str, &str) -> Result<Algorithm, Error>>,
}

/// A window, from which the facts of the others differ.
const WINDOW: Facts = Facts {
    words: 2,
    args: &["amount", "period"],
    ceiling: &["ceiling"],
    top: "amount",
    has_burst: false,
    is_continuous: false,
    is_queue: false,
    is_queued: false,
    is_parted: false,
    is_tagged: false,
    accrues_exactly: true,
    parse: None,
};

const BUCKET: Facts = Facts { args: &["amount", "period", "burst"], has_burst: true, top: "burst", ..WINDOW };

/// A [`Bucket`](super::bucket::Bucket).
const VIRTUAL: Facts =
    Facts { ceiling: &["ceiling", "ceiling_part"], top: "top", is_continuous: true, is_queued: true, ..BUCKET };

/// Holds a row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// Counts the rows.
    #[cfg(feature = "redis")]
    pub(crate) place: u64,
    pub(crate) name: &'static str,
    pub(crate) tag: &'static str,
    /// The text of the script.
    #[cfg(feature = "redis")]
    pub(crate) source: &'static str,
    /// The algorithm, with arguments that serve as an example.
    pub(crate) sample: Algorithm,
    pub(crate) facts: Facts,
}

/// Makes the types and the dispatch from the rows. The row of a feature exists with the feature alone. The first token is the
/// dollar of the macros that are made.
macro_rules! table {
    (
        $d:tt
        $(#[$doc:meta])*
        pub enum Algorithm;
        $(
            $(#[$meta:meta])*
            $([$feature:literal])? $Variant:ident
            $({ $($(#[$field_doc:meta])* $field:ident: $Type:ty = $sample:expr,)+ })?
            => $file:ident, $tag:literal, $facts:expr;
        )*
    ) => {
        $(#[$doc])*
        pub enum Algorithm {
            $(
                $(#[$meta])*
                $(#[cfg(feature = $feature)])?
                $Variant $({ $($(#[$field_doc])* $field: $Type,)+ })?,
            )*
        }

        /// The state of one policy for one key.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) enum State {
            $($(#[cfg(feature = $feature)])? $Variant(super::$file::State),)*
        }

        $(
            $(#[cfg(feature = $feature)])?
            impl From<super::$file::State> for State {
                #[inline]
                fn from(state: super::$file::State) -> Self {
                    Self::$Variant(state)
                }
            }
        )*

        #[cfg(feature = "redis")]
        enum Place {
            $($(#[cfg(feature = $feature)])? $Variant,)*
        }

        /// Lists the rows.
        pub(crate) const ROWS: &[&Row] = &[
            $($(#[cfg(feature = $feature)])? Algorithm::$Variant $({ $($field: $sample),+ })?.row(),)*
        ];

        /// Counts the algorithms that exist with every feature.
        const COUNT: usize = <[&str]>::len(&[
            $($(#[cfg(all(feature = $feature, not(feature = $feature)))])? $tag,)*
        ]);

        impl Algorithm {
            /// Lists the algorithms that exist with every feature, each with sample arguments.
            pub(crate) const ALL: [Self; COUNT] = [
                $(
                    $(#[cfg(all(feature = $feature, not(feature = $feature)))])?
                    Self::$Variant $({ $($field: $sample),+ })?,
                )*
            ];

            /// Returns the row of this algorithm.
            pub(crate) const fn row(self) -> &'static Row {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$Variant { .. } => const {
                            &Row {
                                #[cfg(feature = "redis")]
                                place: Place::$Variant as u64,
                                name: stringify!($file),
                                tag: $tag,
                                #[cfg(feature = "redis")]
                                source: source!(stringify!($file)),
                                sample: Self::$Variant $({ $($field: $sample),+ })?,
                                facts: $facts,
                            }
                        },
                    )*
                }
            }
        }

        impl fmt::Display for Algorithm {
            /// Writes the [name](Algorithm::name), with the arguments in parentheses.
            ///
            /// ```
            /// use tollgate::Algorithm;
            ///
            /// assert_eq!(Algorithm::TokenBucket.to_string(), "token_bucket");
            /// assert_eq!(Algorithm::SlidingBuckets { buckets: 10 }.to_string(), "sliding_buckets(10)");
            /// ```
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$Variant $({ $($field),+ })? => {
                            let arguments: &[&dyn fmt::Display] = &[$($($field),+)?];
                            super::text::write(f, self.name(), arguments)
                        }
                    )*
                }
            }
        }

        /// Runs an expression with the type of the state of an algorithm.
        macro_rules! by_algorithm {
            ($d algorithm:expr, $d Meter:ident => $d run:expr) => {
                match $d algorithm {
                    $(
                        $(#[cfg(feature = $feature)])?
                        $d crate::Algorithm::$Variant { .. } => {
                            type $d Meter = $d crate::model::algorithm::$file::State;
                            $d run
                        }
                    )*
                }
            };
        }

        /// Runs an expression with the state of an algorithm.
        macro_rules! by_state {
            ($d state:expr, $d of:ident => $d run:expr) => {
                match $d state {
                    $(
                        $(#[cfg(feature = $feature)])?
                        $d crate::model::algorithm::State::$Variant($d of) => $d run,
                    )*
                }
            };
        }
    };
}

table! { $
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
    TokenBucket => token_bucket, "t1",
        Facts { is_parted: true, ..VIRTUAL };

    /// Adds n units at once every period W, up to b.
    ///
    /// The bucket starts full. The first refill comes W after the first request, and further
    /// refills follow every W until the bucket is full again. See
    /// [`Policy::interval_bucket`](crate::Policy::interval_bucket).
    #[doc(alias = "burst fill")]
    #[doc(alias = "refill at intervals")]
    IntervalBucket => interval_bucket, "i1",
        Facts { ceiling: &["ceiling", "ceiling_wait"], ..BUCKET };

    /// Queues up to b units and releases one unit every W/n.
    ///
    /// An admitted request is given a [`Decision::delay`](crate::Decision::delay) and should start
    /// only after it. A full bucket denies. See
    /// [`Policy::leaky_bucket`](crate::Policy::leaky_bucket).
    #[doc(alias = "queue")]
    #[doc(alias = "traffic shaping")]
    LeakyBucket => leaky_bucket, "l1",
        Facts { is_queue: true, ..VIRTUAL };

    /// Counts units in windows that start at multiples of W since the Unix epoch.
    ///
    /// All clients get their new quota at the same moment. See
    /// [`Policy::fixed_window`](crate::Policy::fixed_window).
    FixedWindow => fixed_window, "f1",
        WINDOW;

    /// Counts units in periods of the calendar: local days, weeks, months or years.
    ///
    /// The period of the quota is the [nominal](crate::CalendarUnit::nominal) length of the unit. Needs the feature
    /// `calendar`. See [`Policy::calendar_window`](crate::Policy::calendar_window).
    ["calendar"] CalendarWindow {
        /// Sets the period.
        unit: crate::CalendarUnit = crate::CalendarUnit::Month,
        /// Sets the time zone in which the periods begin.
        zone: crate::TimeZone = crate::TimeZone::UTC,
    } => calendar_window, "c1",
        Facts {
            args: &["amount", "before", "begin", "close", "after"],
            parse: Some(super::calendar_window::parse),
            ..WINDOW
        };

    /// Counts units in a window of length W that opens with the first request of a key.
    ///
    /// It counts as `INCR` with `EXPIRE` does. See
    /// [`Policy::window_from_first_hit`](crate::Policy::window_from_first_hit).
    WindowFromFirstHit => window_from_first_hit, "h1",
        WINDOW;

    /// Counts the current window in full and the previous window by the share still within W.
    ///
    /// The windows start at multiples of W since the Unix epoch. n is at most 4 294 967 295. See
    /// [`Policy::sliding_window`](crate::Policy::sliding_window).
    #[doc(alias = "sliding window counter")]
    #[doc(alias = "two counters")]
    SlidingWindow => sliding_window, "w1",
        Facts { words: 3, accrues_exactly: false, ..WINDOW };

    /// Divides W into m sub-windows and counts the current one and the m before it in full.
    ///
    /// The sub-windows are ⌈W/m⌉ µs wide and aligned to the clock. n is at most 4 294 967 295,
    /// because each sub-window takes four bytes. See
    /// [`Policy::sliding_buckets`](crate::Policy::sliding_buckets).
    SlidingBuckets {
        /// Sets the number of sub-windows, m: 1 to 1000, and at most the microseconds in W.
        buckets: u16 = 10,
    } => sliding_buckets, "b1",
        Facts {
            words: 4,
            args: &["amount", "width", "buckets"],
            accrues_exactly: false,
            parse: Some(sliding_buckets::parse),
            ..WINDOW
        };

    /// Stores the time of every admitted unit.
    ///
    /// n is at most 100 000, because each unit takes about 11 bytes in Redis. See
    /// [`Policy::sliding_log`](crate::Policy::sliding_log).
    SlidingLog => sliding_log, "s1",
        Facts { words: 4, is_tagged: true, ..WINDOW };
}

pub(super) use {by_algorithm, by_state};

impl Algorithm {
    /// Returns the name of this algorithm, which is that of its constructor: `sliding_buckets`.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert_eq!(Algorithm::SlidingBuckets { buckets: 10 }.name(), "sliding_buckets");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the letter and the storage version at the end of a Redis key.
    ///
    /// Another algorithm, or another layout of the state, uses another key.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert_eq!(Algorithm::TokenBucket.tag(), "t1");
    /// ```
    #[must_use]
    pub const fn tag(self) -> &'static str {
        self.row().tag
    }

    /// Returns the algorithm whose states have this [tag](Self::tag). An algorithm with arguments has sample arguments.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert_eq!(Algorithm::of_tag("s1"), Some(Algorithm::SlidingLog));
    /// assert_eq!(Algorithm::of_tag("x1"), None);
    /// ```
    #[must_use]
    pub fn of_tag(tag: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.tag == tag).map(|row| row.sample)
    }

    /// Returns `true` when the quota may have a burst that differs from its amount.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert!(Algorithm::TokenBucket.has_burst());
    /// assert!(!Algorithm::FixedWindow.has_burst());
    /// ```
    #[must_use]
    pub const fn has_burst(self) -> bool {
        self.facts().has_burst
    }

    /// Returns `true` when an admitted request waits for its turn: a leaky bucket is a queue.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert!(Algorithm::LeakyBucket.is_queue());
    /// assert!(!Algorithm::TokenBucket.is_queue());
    /// ```
    #[must_use]
    pub const fn is_queue(self) -> bool {
        self.facts().is_queue
    }

    /// Returns `true` when units return one by one, and not many at the same time.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert!(Algorithm::TokenBucket.is_continuous());
    /// assert!(!Algorithm::IntervalBucket.is_continuous());
    /// ```
    #[must_use]
    pub const fn is_continuous(self) -> bool {
        self.facts().is_continuous
    }

    pub(crate) const fn facts(self) -> &'static Facts {
        &self.row().facts
    }

    /// Returns `true` when this algorithm can read a state written under `other`.
    pub(crate) fn reads(self, other: Self) -> bool {
        self.tag() == other.tag()
    }

    /// Returns `true` when a refund depends on the time until the bucket is full, as it was after the request. `is_capped`
    /// is set when the request had a ceiling: an interval bucket that went into debt has given out places.
    pub(crate) const fn is_queued(self, is_capped: bool) -> bool {
        self.facts().is_queued || is_capped && self.has_burst()
    }
}
