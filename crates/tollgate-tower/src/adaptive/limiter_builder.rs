use std::{borrow::Cow, ops::RangeInclusive, time::Duration};

use tollgate::Clock;

use super::algorithm::LimitAlgorithm;

/// Builds an [`AdaptiveLimiter`](super::AdaptiveLimiter) with options.
///
/// ```
/// use std::time::Duration;
/// use tollgate_tower::adaptive::{AdaptiveLimiter, Gradient};
///
/// let limiter = AdaptiveLimiter::builder(Gradient::new())
///     .limits(20..=400)
///     .initial_limit(40)
///     .window(Duration::from_millis(250))
///     .shares([1.0, 0.7])
///     .build();
/// assert_eq!(limiter.limit(), 40);
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct AdaptiveLimiterBuilder {
    pub(super) algorithm: Box<dyn LimitAlgorithm>,
    pub(super) limits: RangeInclusive<u32>,
    pub(super) initial_limit: u32,
    pub(super) window: Duration,
    pub(super) min_samples: u32,
    pub(super) shares: Box<[f64]>,
    pub(super) clock: Clock,
    pub(super) name: Cow<'static, str>,
}

impl AdaptiveLimiterBuilder {
    pub(super) fn new(algorithm: Box<dyn LimitAlgorithm>) -> Self {
        Self {
            algorithm,
            limits: 5..=1000,
            initial_limit: 20,
            window: Duration::from_millis(100),
            min_samples: 10,
            shares: Box::new([1.0, 0.7, 0.5]),
            clock: Clock::monotonic(),
            name: Cow::Borrowed("adaptive"),
        }
    }

    /// Sets the lowest and the highest limit. The default is 5 to 1000.
    ///
    /// Choose the lowest one so that the most important requests fit when the service is as slow as it can be:
    /// requests per second × latency in seconds.
    ///
    /// # Panics
    ///
    /// Panics if the lowest limit is 0, or if it is above the highest one.
    pub fn limits(mut self, limits: RangeInclusive<u32>) -> Self {
        assert!(*limits.start() > 0, "the lowest limit must be at least 1, got 0");
        assert!(!limits.is_empty(), "the lowest limit {} is above the highest one {}", limits.start(), limits.end());
        self.limits = limits;
        self
    }

    /// Sets the limit at the start. The default is 20. It is cut to the bounds that [`limits`](Self::limits) sets.
    pub fn initial_limit(mut self, limit: u32) -> Self {
        self.initial_limit = limit;
        self
    }

    /// Sets the length of a window. The limit changes once in each window. The default is 100 ms.
    ///
    /// A window that has not seen [`min_samples`](Self::min_samples) requests goes on until it has.
    pub fn window(mut self, length: Duration) -> Self {
        self.window = length;
        self
    }

    /// Sets the number of requests that a window has at least. The default is 10.
    pub fn min_samples(mut self, samples: u32) -> Self {
        self.min_samples = samples;
        self
    }

    /// Sets the share of the limit that each class of requests may use, the most important class first.
    ///
    /// The default is 100 %, 70 % and 50 %, for [`CRITICAL`](super::Priority::CRITICAL),
    /// [`NORMAL`](super::Priority::NORMAL) and [`LOW`](super::Priority::LOW). A request is shed when that share of the
    /// limit is in flight, whatever the classes of the requests in flight. A share is rounded down to whole requests,
    /// and is at least one request.
    ///
    /// # Panics
    ///
    /// Panics if the list is empty, if a share is not above 0 and at most 1, or if a class has a greater share than the
    /// one before it.
    pub fn shares(mut self, shares: impl Into<Box<[f64]>>) -> Self {
        let shares = shares.into();
        assert!(!shares.is_empty(), "the list of shares is empty");
        for share in &shares {
            assert!(*share > 0.0 && *share <= 1.0, "a share must be above 0 and at most 1, got {share}");
        }
        assert!(
            shares.is_sorted_by(|more, less| more >= less),
            "a share is greater than the one of a more important class: {shares:?}"
        );
        self.shares = shares;
        self
    }

    /// Sets the clock that measures latencies. The default is [`Clock::monotonic`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the name of the limiter in the metrics. The default is `adaptive`.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = name.into();
        self
    }
}
