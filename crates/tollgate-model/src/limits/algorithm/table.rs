//! The table of the algorithms: what other code has to know of each.
//! What an algorithm does is in the file of its name, and what it is for at [`Algorithm`]. What a
//! row of a script is made of is in `tollgate-redis/src/protocol/script/`.

use std::time::Duration;

#[cfg(feature = "calendar")]
use super::calendar_window;
use super::{Algorithm, lockout, sliding_buckets};
use crate::Error;

/// Reads an algorithm from its whole text, and from what follows its name.
type Parse = fn(&str, &str) -> Result<Algorithm, Error>;

/// Names what other code has to know of an algorithm.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The number of integers of a reading.
    pub(crate) reading_len: usize,
    /// The quota may have a burst that differs from its amount.
    pub(crate) has_burst: bool,
    /// Units return one by one, so that n per W and 2n per 2W are the same rate.
    pub(crate) is_continuous: bool,
    /// An admitted request waits for its turn.
    pub(crate) is_queue: bool,
    /// A refund depends on the time until the bucket is full, as it was after the request.
    pub(crate) is_queued: bool,
    /// The second integer of a reading is a part of the first one: zero where the amount divides the
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
        reading_len: 2,
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

    /// A [`Bucket`](super::bucket::Bucket).
    pub(super) const VIRTUAL: Self = Self {
        is_continuous: true,
        is_queued: true,
        ..Self::BUCKET
    };
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// The name of the algorithm, of its file here and of that in `scripts/`.
    pub(crate) name: &'static str,
    /// The tag of the layout of its state.
    pub(crate) tag: &'static str,
    /// The algorithm, with arguments that serve as an example.
    pub(crate) sample: Algorithm,
    pub(crate) facts: Facts,
}

const TOKEN_BUCKET: &Row = &Row {
    name: "token_bucket",
    tag: "t1",
    sample: Algorithm::TokenBucket,
    facts: Facts {
        is_parted: true,
        ..Facts::VIRTUAL
    },
};
const INTERVAL_BUCKET: &Row = &Row {
    name: "interval_bucket",
    tag: "i1",
    sample: Algorithm::IntervalBucket,
    facts: Facts::BUCKET,
};
const LEAKY_BUCKET: &Row = &Row {
    name: "leaky_bucket",
    tag: "l1",
    sample: Algorithm::LeakyBucket,
    facts: Facts {
        is_queue: true,
        is_leasable: false,
        ..Facts::VIRTUAL
    },
};
const FIXED_WINDOW: &Row = &Row {
    name: "fixed_window",
    tag: "f1",
    sample: Algorithm::FixedWindow,
    facts: Facts::WINDOW,
};
#[cfg(feature = "calendar")]
const CALENDAR_WINDOW: &Row = &Row {
    name: "calendar_window",
    tag: "c1",
    sample: Algorithm::CalendarWindow {
        unit: crate::CalendarUnit::Month,
        zone: crate::TimeZone::UTC,
        anchor: None,
    },
    facts: Facts {
        parse: Some(calendar_window::parse),
        ..Facts::WINDOW
    },
};
const WINDOW_FROM_FIRST_HIT: &Row = &Row {
    name: "window_from_first_hit",
    tag: "h1",
    sample: Algorithm::WindowFromFirstHit,
    facts: Facts::WINDOW,
};
const SLIDING_WINDOW: &Row = &Row {
    name: "sliding_window",
    tag: "w1",
    sample: Algorithm::SlidingWindow,
    facts: Facts {
        reading_len: 3,
        ..Facts::WINDOW
    },
};
const SLIDING_BUCKETS: &Row = &Row {
    name: "sliding_buckets",
    tag: "b1",
    sample: Algorithm::SlidingBuckets { buckets: 10 },
    facts: Facts {
        reading_len: 4,
        parse: Some(sliding_buckets::parse),
        ..Facts::WINDOW
    },
};
const SLIDING_LOG: &Row = &Row {
    name: "sliding_log",
    tag: "s1",
    sample: Algorithm::SlidingLog,
    facts: Facts {
        reading_len: 4,
        is_tagged: true,
        ..Facts::WINDOW
    },
};
const LOCKOUT: &Row = &Row {
    name: "lockout",
    tag: "k1",
    sample: Algorithm::Lockout {
        first: Duration::from_secs(60),
        longest: Duration::from_secs(3_600),
    },
    facts: Facts {
        reading_len: 4,
        is_leasable: false,
        parse: Some(lockout::parse),
        ..Facts::WINDOW
    },
};

/// Lists the rows. The row of a feature exists with the feature alone.
pub(crate) const ROWS: &[&Row] = &[
    TOKEN_BUCKET,
    INTERVAL_BUCKET,
    LEAKY_BUCKET,
    FIXED_WINDOW,
    #[cfg(feature = "calendar")]
    CALENDAR_WINDOW,
    WINDOW_FROM_FIRST_HIT,
    SLIDING_WINDOW,
    SLIDING_BUCKETS,
    SLIDING_LOG,
    LOCKOUT,
];

/// Lists the algorithms, each with sample arguments. A store tests with it that it has all of them.
pub fn algorithms() -> impl Iterator<Item = Algorithm> {
    ROWS.iter().map(|row| row.sample)
}

impl Algorithm {
    /// Lists the algorithms that exist with every feature, each with sample arguments.
    pub(crate) const ALL: [Self; 9] = [
        TOKEN_BUCKET.sample,
        INTERVAL_BUCKET.sample,
        LEAKY_BUCKET.sample,
        FIXED_WINDOW.sample,
        WINDOW_FROM_FIRST_HIT.sample,
        SLIDING_WINDOW.sample,
        SLIDING_BUCKETS.sample,
        SLIDING_LOG.sample,
        LOCKOUT.sample,
    ];

    pub(crate) const fn row(self) -> &'static Row {
        match self {
            Self::TokenBucket => TOKEN_BUCKET,
            Self::IntervalBucket => INTERVAL_BUCKET,
            Self::LeakyBucket => LEAKY_BUCKET,
            Self::FixedWindow => FIXED_WINDOW,
            #[cfg(feature = "calendar")]
            Self::CalendarWindow { .. } => CALENDAR_WINDOW,
            Self::WindowFromFirstHit => WINDOW_FROM_FIRST_HIT,
            Self::SlidingWindow => SLIDING_WINDOW,
            Self::SlidingBuckets { .. } => SLIDING_BUCKETS,
            Self::SlidingLog => SLIDING_LOG,
            Self::Lockout { .. } => LOCKOUT,
        }
    }

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

    /// Returns `true` when the period is stored with the state of a window.
    pub(crate) const fn is_timed(self) -> bool {
        matches!(self, Self::FixedWindow | Self::WindowFromFirstHit)
    }
}

/// Reads how the level of an algorithm looks in a reply.
pub trait AlgorithmParts: Sized {
    /// Returns the number of integers of a reading.
    fn reading_len(self) -> usize;

    /// Returns whether the second integer of a reading is a part of the first one: zero where the amount
    /// divides the period.
    fn is_parted(&self) -> bool;

    /// Returns whether a refund depends on the time until the bucket is full, as it was after the
    /// request. `is_capped` is set when the request had a ceiling: an interval bucket that went into
    /// debt has given out places.
    fn is_queued(&self, is_capped: bool) -> bool;
}

impl AlgorithmParts for Algorithm {
    #[inline]
    fn reading_len(self) -> usize {
        self.facts().reading_len
    }

    #[inline]
    fn is_parted(&self) -> bool {
        self.facts().is_parted
    }

    #[inline]
    fn is_queued(&self, is_capped: bool) -> bool {
        self.facts().is_queued || is_capped && self.has_burst()
    }
}
