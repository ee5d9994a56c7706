/// How a [`Policy`](crate::Policy) meters its quota.
///
/// | | at most, in any interval of L | state per key |
/// |---|---|---|
/// | [`TokenBucket`](Self::TokenBucket) | b + ⌊n·L/W⌋ | one time |
/// | [`IntervalBucket`](Self::IntervalBucket) | b − 1 + n·⌈L/W⌉ | one time, one count |
/// | [`LeakyBucket`](Self::LeakyBucket) | b waiting, one leaves each W/n | one time |
/// | [`FixedWindow`](Self::FixedWindow) | 2n in W | one time, one count |
/// | [`WindowFromFirstHit`](Self::WindowFromFirstHit) | 2n − 1 in W | one time, one count |
/// | [`SlidingWindow`](Self::SlidingWindow) | 2n − 1 in W, near n for even traffic | one time, two counts |
/// | [`SlidingBuckets`](Self::SlidingBuckets) | n in W | up to m + 1 counts |
/// | [`SlidingLog`](Self::SlidingLog) | n in W | up to n times |
///
/// Bounds are over any half-open interval of length L, for amount n per period W and burst b; each
/// is reached by somebody who tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Holds at most b units and gains n per W, continuously; starts full. Admits at most
    /// b + ⌊n·L/W⌋. The choice for most limits: bursts are welcome, the rate holds.
    ///
    /// It does not keep to n in every W: after a rest it gives the burst on top. Where n is a
    /// promise, use [`SlidingBuckets`](Self::SlidingBuckets).
    ///
    /// Kept as virtual scheduling, one stored time: the generic cell rate algorithm (GCRA) of
    /// ITU-T I.371 is the same mathematics.
    #[doc(alias = "gcra")]
    #[doc(alias = "replenish rate")]
    TokenBucket,
    /// Holds at most b units; n of them arrive at once, W after the first spend, and again W later
    /// while something is missing. Unused ones never add up beyond b. Admits at most
    /// b − 1 + n·⌈L/W⌉.
    ///
    /// For limits that are told as "n, then wait for the next fill", with short periods above all.
    /// A [`TokenBucket`](Self::TokenBucket) of the same quota never admits more, and lets a client
    /// go on sooner.
    #[doc(alias = "burst fill")]
    #[doc(alias = "refill at intervals")]
    IntervalBucket,
    /// A queue of depth b that drains at n per W: each admitted request is told in
    /// [`Decision::delay`](crate::Decision::delay) how long to wait for its turn, and the turns
    /// are W/n apart; a full queue denies. [`Limiter::until_ready`](crate::Limiter::until_ready)
    /// waits.
    ///
    /// For work that has to be even: calls to somebody else's API, e-mails. The one that waits
    /// holds a connection or a task meanwhile; where a client shall rather come back later, use a
    /// [`TokenBucket`](Self::TokenBucket), whose arithmetic is the same.
    #[doc(alias = "queue")]
    #[doc(alias = "traffic shaping")]
    LeakyBucket,
    /// A counter for each window of W that starts at a multiple of W since the Unix epoch. Admits
    /// n per window, and so up to 2n around a window's edge. For quotas that people read on a
    /// calendar: a day's, an hour's (in UTC). Everybody's window ends at the same moment, and the
    /// next one begins with a rush; where that hurts, take any other.
    FixedWindow,
    /// A counter whose window opens with the first hit and lasts W. Admits n per window, and up to
    /// 2n − 1 in some interval of length W. What `INCR` with `EXPIRE` is meant to be; use it to
    /// match a limit that somebody else enforces that way.
    WindowFromFirstHit,
    /// Two counters: what was spent in this aligned window, and of the window before it the share
    /// that still lies inside. A steady client gets n − 1 to n in any W, with no rush at the edge;
    /// one that knows the edge up to 2n − 1, because the share takes the window before as even.
    /// n·W must stay below 2⁵³ (in µs: 104 000 a day).
    ///
    /// For large limits over long periods at constant memory. Where n is a promise, use
    /// [`SlidingBuckets`](Self::SlidingBuckets).
    #[doc(alias = "sliding window counter")]
    #[doc(alias = "two counters")]
    SlidingWindow,
    /// W cut into m sub-windows of ⌈W/m⌉ µs aligned to the clock; that of now and the m before it
    /// count in full. Never more than n in any W. A unit counts for W to W·(1 + 1/m), so a steady
    /// client gets n·m/(m + 1) per W at the least.
    ///
    /// The exact limit at a bounded price: a few bytes for each sub-window in which something was
    /// spent. Where it must also never deny too much, use [`SlidingLog`](Self::SlidingLog).
    SlidingBuckets {
        /// How many sub-windows, m: 1 to 1000, and no more than W has microseconds.
        buckets: u16,
    },
    /// The time of every admitted unit: never more than n in any W, and a denial only when n are
    /// inside. n is at most 100 000.
    ///
    /// The exact limit both ways, for small n: about 11 bytes at the server for each unit inside.
    /// Each entry may carry a [tag](crate::Limiter::check_tagged), to ask afterwards
    /// [who spent](crate::Limiter::entries). For large n use
    /// [`SlidingBuckets`](Self::SlidingBuckets).
    SlidingLog,
}

impl Algorithm {
    /// The letter and storage version that end a Redis key: another algorithm, or another layout
    /// of the state, is another key.
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Self::TokenBucket => "t1",
            Self::IntervalBucket => "i1",
            Self::LeakyBucket => "l1",
            Self::FixedWindow => "f1",
            Self::WindowFromFirstHit => "h1",
            Self::SlidingWindow => "w1",
            Self::SlidingBuckets { .. } => "b1",
            Self::SlidingLog => "s1",
        }
    }

    /// Whether a state written under `other` is one of this algorithm's.
    pub(crate) fn reads(self, other: Self) -> bool {
        self.tag() == other.tag()
    }

    /// Each of them, for tests.
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

    /// How many words its level has.
    pub(crate) const fn words(self) -> usize {
        match self {
            Self::TokenBucket
            | Self::LeakyBucket
            | Self::IntervalBucket
            | Self::FixedWindow
            | Self::WindowFromFirstHit => 2,
            Self::SlidingWindow => 3,
            Self::SlidingBuckets { .. } | Self::SlidingLog => 4,
        }
    }

    /// Whether a burst other than the amount means something.
    pub(crate) const fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::IntervalBucket | Self::LeakyBucket)
    }

    /// Whether units come one by one, so that a longer period is an equal rate.
    pub(crate) const fn is_continuous(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }
}
