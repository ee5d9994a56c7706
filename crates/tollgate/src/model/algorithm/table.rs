//! What is made from the rows of the table, and what a row holds.

use super::{Algorithm, ROWS};
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

/// Reads an algorithm from its whole text, and from what follows its name.
type Parse = fn(&str, &str) -> Result<Algorithm, Error>;

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
    /// Whether replicas may take units in advance.
    pub(crate) is_leasable: bool,
    /// Whether the tag of a check is stored, in a list.
    pub(crate) is_tagged: bool,
    /// Whether exactly k times the amount accrues in k whole periods.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "the laws ask"))]
    pub(crate) accrues_exactly: bool,
    /// Reads the arguments of an algorithm that has some: from its whole text, and from what follows its name.
    pub(crate) parse: Option<Parse>,
}

impl Facts {
    /// A window, from which the others differ.
    pub(super) const WINDOW: Self = Self {
        words: 2,
        args: &["amount", "period"],
        ceiling: &["ceiling"],
        top: "amount",
        has_burst: false,
        is_continuous: false,
        is_queue: false,
        is_queued: false,
        is_parted: false,
        is_leasable: true,
        is_tagged: false,
        accrues_exactly: true,
        parse: None,
    };

    pub(super) const BUCKET: Self =
        Self { args: &["amount", "period", "burst"], has_burst: true, top: "burst", ..Self::WINDOW };

    /// A [`Bucket`](super::bucket::Bucket).
    pub(super) const VIRTUAL: Self = Self {
        ceiling: &["ceiling", "ceiling_part"],
        top: "top",
        is_continuous: true,
        is_queued: true,
        ..Self::BUCKET
    };
}

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
            $($(#[cfg(feature = $feature)])? $Variant($file::State),)*
        }

        $(
            $(#[cfg(feature = $feature)])?
            impl From<$file::State> for State {
                #[inline]
                fn from(state: $file::State) -> Self {
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

        impl std::fmt::Display for Algorithm {
            /// Writes the [name](Algorithm::name), with the arguments in parentheses.
            ///
            /// ```
            /// use tollgate::Algorithm;
            ///
            /// assert_eq!(Algorithm::TokenBucket.to_string(), "token_bucket");
            /// assert_eq!(Algorithm::SlidingBuckets { buckets: 10 }.to_string(), "sliding_buckets(10)");
            /// ```
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$Variant $({ $($field),+ })? => {
                            let arguments: &[&dyn text::Argument] = &[$($($field),+)?];
                            text::write(f, self.name(), arguments)
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

    /// Returns `true` when replicas may [lease](crate::Policy::leased) units of a policy of this algorithm.
    ///
    /// A leased unit has no place in the queue of a leaky bucket, and a lockout has none to give away.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// assert!(Algorithm::TokenBucket.is_leasable());
    /// assert!(!Algorithm::LeakyBucket.is_leasable());
    /// ```
    #[must_use]
    pub const fn is_leasable(self) -> bool {
        self.facts().is_leasable
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
