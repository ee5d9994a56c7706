//! Says what a row of the table has, what is made from the rows, and the functions over all
//! algorithms.
//!
//! The functions derive the numbers that a caller sees from the words of a level.
//! The rows stand in `mod.rs`. What a row of a script is made of is in `redis/protocol/script/`.

use std::ops::Range;

use super::State;
use super::{Algorithm, Meter, ROWS, by_algorithm};
use crate::{
    Error, Policy,
    model::{charge::Ask, quota::Span},
};

/// Reads an algorithm from its whole text, and from what follows its name.
type Parse = fn(&str, &str) -> Result<Algorithm, Error>;

/// Names what other code has to know of an algorithm.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The number of words of a level.
    pub(crate) words: usize,
    /// The quota may have a burst that differs from its amount.
    pub(crate) has_burst: bool,
    /// Units return one by one, so that n per W and 2n per 2W are the same rate.
    pub(crate) is_continuous: bool,
    /// An admitted request waits for its turn.
    pub(crate) is_queue: bool,
    /// A refund depends on the time until the bucket is full, as it was after the request.
    pub(crate) is_queued: bool,
    /// The second word of a level is a part of the first one: zero where the amount divides the
    /// period.
    pub(crate) is_parted: bool,
    /// Replicas may take units in advance.
    pub(crate) is_leasable: bool,
    /// The tag of a check is stored, in a list.
    pub(crate) is_tagged: bool,
    /// Reads the arguments of an algorithm that has some: from its whole text, and from what
    /// follows its name.
    pub(crate) parse: Option<Parse>,
}

impl Facts {
    /// A window, from which the others differ.
    pub(super) const WINDOW: Self = Self {
        words: 2,
        has_burst: false,
        is_continuous: false,
        is_queue: false,
        is_queued: false,
        is_parted: false,
        is_leasable: true,
        is_tagged: false,
        parse: None,
    };

    pub(super) const BUCKET: Self = Self {
        has_burst: true,
        ..Self::WINDOW
    };

    /// A [`Bucket`](super::leaky_bucket::Bucket).
    pub(super) const VIRTUAL: Self = Self {
        is_continuous: true,
        is_queued: true,
        ..Self::BUCKET
    };
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// Counts the rows.
    pub(crate) place: u64,
    pub(crate) name: &'static str,
    pub(crate) tag: &'static str,
    /// The algorithm, with arguments that serve as an example.
    pub(crate) sample: Algorithm,
    pub(crate) facts: Facts,
}

/// Makes the types and the dispatch from the rows. The row of a feature exists with the feature
/// alone. The first token is the dollar of the macros that are made.
macro_rules! table {
    (
        $d:tt
        $(#[$doc:meta])*
        pub enum Algorithm;
        $(
            $(#[$meta:meta])*
            $([$feature:literal])? $Variant:ident
            $({ $($(#[$field_doc:meta])* $field:ident: $Type:ty = $sample:expr,)+ })?
            => $file:ident::$State:ident, $tag:literal, $facts:expr;
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
            $($(#[cfg(feature = $feature)])? $Variant($file::$State),)*
        }

        $(
            $(#[cfg(feature = $feature)])?
            impl From<$file::$State> for State {
                #[inline]
                fn from(state: $file::$State) -> Self {
                    Self::$Variant(state)
                }
            }
        )*

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

            pub(crate) const fn row(self) -> &'static Row {
                match self {
                    $(
                        $(#[cfg(feature = $feature)])?
                        Self::$Variant { .. } => const {
                            &Row {
                                place: Place::$Variant as u64,
                                name: stringify!($file),
                                tag: $tag,
                                sample: Self::$Variant $({ $($field: $sample),+ })?,
                                facts: $facts,
                            }
                        },
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
                            type $d Meter = $d crate::model::algorithm::$file::$State;
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
    /// Returns the name of this algorithm and of its constructor.
    ///
    /// ```
    /// use tollgate::Algorithm;
    ///
    /// let buckets = Algorithm::SlidingBuckets { buckets: 10 };
    /// assert_eq!((buckets.name(), buckets.tag()), ("sliding_buckets", "b1"));
    /// assert_eq!(Algorithm::of_tag("s1"), Some(Algorithm::SlidingLog));
    /// assert_eq!(Algorithm::of_tag("x1"), None);
    ///
    /// let (bucket, queue) = (Algorithm::TokenBucket, Algorithm::LeakyBucket);
    /// assert!(bucket.has_burst() && bucket.is_continuous() && !buckets.has_burst());
    /// assert!(queue.is_queue() && !queue.is_leasable() && bucket.is_leasable());
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the letter and the storage version at the end of a Redis key.
    ///
    /// Another algorithm, or another layout of the state, uses another key.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        self.row().tag
    }

    /// Returns the algorithm whose states have this [tag](Self::tag). An algorithm with arguments
    /// has sample arguments.
    #[must_use]
    pub fn of_tag(tag: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.tag == tag).map(|row| row.sample)
    }

    /// Returns `true` when the quota may have a burst that differs from its amount.
    #[must_use]
    pub const fn has_burst(self) -> bool {
        self.facts().has_burst
    }

    /// Returns `true` when an admitted request waits for its turn: a leaky bucket is a queue.
    #[must_use]
    pub const fn is_queue(self) -> bool {
        self.facts().is_queue
    }

    /// Returns `true` when replicas may [lease](crate::Policy::leased) units of a policy of this
    /// algorithm.
    ///
    /// A leased unit has no place in the queue of a leaky bucket, and a lockout has none to give
    /// away.
    #[must_use]
    pub const fn is_leasable(self) -> bool {
        self.facts().is_leasable
    }

    /// Returns `true` when units return one by one, and not many at the same time.
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

    /// Returns `true` when a refund depends on the time until the bucket is full, as it was after
    /// the request. `is_capped` is set when the request had a ceiling: an interval bucket that went
    /// into debt has given out places.
    pub(crate) const fn is_queued(self, is_capped: bool) -> bool {
        self.facts().is_queued || is_capped && self.has_burst()
    }

    /// Returns `true` when the period is stored with the state of a window.
    pub(crate) const fn is_timed(self) -> bool {
        matches!(self, Self::FixedWindow | Self::WindowFromFirstHit)
    }
}

/// Derives the numbers of a policy from its level after a check that asked for `ask`.
///
/// Only the time to retry depends on a ceiling: all else is said of checks without one.
pub(crate) fn numbers(policy: &Policy, level: &PolicyLevel, ask: impl Into<Ask>) -> Numbers {
    let (algorithm, words) = (policy.algorithm(), &level.words);
    let denied = ask.into().denied_unless(level.fits);
    let mut numbers = by_algorithm!(algorithm, Of => <Of as Meter>::numbers(policy, words, denied));
    if denied.cost > 0 {
        if algorithm.facts().words < words.len() {
            // Only a leased policy has this word: the time until missing units have lapsed.
            numbers.retry_us = numbers.retry_us.max(words[3]);
        }
        numbers.reset_us = numbers.reset_us.max(numbers.retry_us);
    }
    numbers
}

/// Returns the delay of a request that charged `charged` units, in microseconds: the time until its
/// turn in a queue, or until the debt into which it went is paid.
pub(crate) fn delay_us(policy: &Policy, level: &PolicyLevel, charged: u64) -> u64 {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::delay_us(policy, &level.words, charged))
}

/// Returns the period whose units a policy counts, see [`Meter::period_us`].
pub(crate) fn period_us(policy: &Policy, now_us: u64, more_us: u64) -> Option<Range<u64>> {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::period_us(policy, now_us, more_us))
}

/// Returns the end of the places of a request, see [`Meter::end_of`].
pub(crate) fn end_of(
    policy: &Policy,
    level: &PolicyLevel,
    is_owed: impl FnOnce() -> bool,
) -> Option<Span> {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::end_of(&level.words, is_owed))
}

/// Returns the most units that a policy spends in debt.
pub(crate) fn most_spent(policy: &Policy) -> u64 {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::most_spent(policy))
}

/// Returns the numbers that a script takes behind the amount of a policy: up to three.
pub(crate) fn args(policy: &Policy) -> [Option<u64>; 3] {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::args(policy))
}

/// Returns the numbers that a script takes of a ceiling: one or two.
pub(crate) fn ceiling_args(policy: &Policy, ask: Ask) -> (u64, Option<u64>) {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::ceiling_args(policy, ask))
}

/// Returns the words as they were before the last `units` units were charged at the same instant. A
/// batch returns only the words after its last request, and this derives the words of the others.
pub(crate) fn unspent(policy: &Policy, words: &Words, units: u64) -> Words {
    let mut words = *words;
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::unspend(policy, &mut words, units));
    words
}

/// Returns the level of a policy `passed_us` after it was `level` at `at_us`, if nobody spent
/// since.
pub(crate) fn later(
    policy: &Policy,
    level: &PolicyLevel,
    at_us: u64,
    passed_us: u64,
    ask: impl Into<Ask>,
) -> PolicyLevel {
    let ask = ask.into();
    // The reply for a single bucket has no time. Any time gives the same result then.
    let at_us = if at_us == 0 {
        crate::model::quota::MAX_EXACT
    } else {
        at_us
    };
    let Some(mut state) = state_of(policy, &level.words, at_us) else {
        let [_, retry_us, reset_us, more_us] =
            level.words.map(|word| word.saturating_sub(passed_us));
        let fits = level.fits || retry_us == 0;
        let used = if reset_us > 0 { level.words[0] } else { 0 };
        return PolicyLevel {
            fits,
            words: [used, if fits { 0 } else { retry_us }, reset_us, more_us],
        };
    };
    let now_us = at_us + passed_us;
    state.mark_debt(policy, at_us);
    let state = state.settle(policy, None, now_us).state;
    let mut later = PolicyLevel {
        fits: state.fits(policy, now_us, ask),
        words: state.words(policy, now_us, ask),
    };
    if !level.fits {
        later.words[3] = level.words[3].saturating_sub(passed_us);
        later.fits &= later.words[3] == 0;
    }
    later
}

/// Returns the level of a policy `passed_us` after it was `level` at `at_us`, with at most `most`
/// units left.
pub(crate) fn lowered(
    policy: &Policy,
    level: &PolicyLevel,
    at_us: u64,
    passed_us: u64,
    most: u64,
) -> PolicyLevel {
    let mut level = later(
        policy,
        &PolicyLevel {
            fits: true,
            ..*level
        },
        at_us,
        passed_us,
        0,
    );
    let surplus = numbers(policy, &level, 0).remaining.saturating_sub(most);
    if surplus == 0 {
        return level;
    }
    let now_us = if at_us == 0 {
        crate::model::quota::MAX_EXACT
    } else {
        at_us
    } + passed_us;
    level.words = match state_of(policy, &level.words, now_us) {
        Some(mut state) => {
            state.charge(policy, now_us, surplus, &[]);
            state.words(policy, now_us, 0)
        }
        None => {
            let period_us = policy.quota_ref().period_us();
            let [used, _, reset_us, more_us] = level.words;
            let more_us = if used == 0 { period_us } else { more_us };
            [used + surplus, 0, reset_us.max(period_us), more_us]
        }
    };
    level
}

/// Returns the state that has these words at `at_us`. `None` for an algorithm with more in its
/// state than in its words.
fn state_of(policy: &Policy, words: &Words, at_us: u64) -> Option<State> {
    by_algorithm!(policy.algorithm(), Of => <Of as Meter>::of_words(policy, words, at_us).map(State::from))
}

/// The integers of one policy in the reply of a script. The pure functions return the same. The
/// algorithm defines the meaning of each word. Unused words are zero.
pub(crate) type Words = [u64; 4];

/// The level of one policy for one key at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyLevel {
    /// The cost fits, or fitted before it was charged.
    pub(crate) fits: bool,
    /// The state after the charge, or the unchanged state when nothing was charged.
    pub(crate) words: Words,
}

/// The numbers that a caller sees for one policy. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// The units that would be admitted at this instant.
    pub(crate) remaining: u64,
    /// The time until the denied cost fits, if nobody else spends; 0 when it fits now.
    pub(crate) retry_us: u64,
    /// The time until the state equals a fresh one.
    pub(crate) reset_us: u64,
    /// The time until one unit more than `remaining` is available; 0 when nothing is spent.
    pub(crate) more_us: u64,
}
