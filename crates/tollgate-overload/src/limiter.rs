//! The limiter: requests in flight are counted, admitted or shed by atomics that all threads share.
//! Its builder is here too.
//! A new limit is computed in `estimator.rs`. HTTP is known only in `layer.rs` and `request.rs`.

use std::{
    borrow::Cow,
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_core::store::Clock;
use tollgate_tower::rejection::Overload;

use crate::{
    algorithm::{Gradient, LimitAlgorithm},
    class::Class,
    estimator::Estimator,
    metrics::AdaptiveMetrics,
    signal::Signal,
    window::Sample,
};

/// Limits the requests in flight in this process, by the latency of the service.
///
/// The limit follows what the service can do: an [algorithm](LimitAlgorithm) computes it from the
/// latencies of finished requests. A request takes a [`Slot`](crate::Slot), and gives it back when
/// it ends. Without a free slot the request is shed: [`try_acquire`](Self::try_acquire) fails at
/// once. An [`AdaptiveLayer`](crate::AdaptiveLayer) does this for a service.
///
/// Clones share the slots and the limit. Give clones to several layers whose requests share one
/// resource, such as a database. Give each service a limiter of its own when the resources differ,
/// or when the latencies differ by an order of magnitude.
///
/// Admission takes no lock: it reads the limit, and counts the request in one atomic number. When a
/// request is admitted, no more requests are in flight than the limit allows.
///
/// To limit the requests in flight of all replicas together, use a
/// [`ConcurrencyLimiter`](tollgate_core::permits::ConcurrencyLimiter). To limit requests over time, use
/// a [`Limiter`](tollgate_core::Limiter).
///
/// ```
/// use tollgate_overload::{AdaptiveLimiter, Gradient, Class, Signal};
///
/// let limiter = AdaptiveLimiter::builder(Gradient::new()).limits(1..=100).initial_limit(10).build();
/// let mut slots: Vec<_> = (0..7).map(|_| limiter.try_acquire(Class::NORMAL).unwrap()).collect();
///
/// // The last 30 % of the limit is for critical requests.
/// assert!(limiter.try_acquire(Class::NORMAL).is_err());
/// let critical = limiter.try_acquire(Class::CRITICAL).unwrap();
/// assert_eq!(limiter.in_flight(), 8);
///
/// slots.pop().unwrap().finish(Signal::Success);
/// drop((slots, critical));
/// assert_eq!(limiter.in_flight(), 0);
/// ```
#[doc(alias = "load shedding")]
#[doc(alias = "overload")]
#[derive(Clone)]
pub struct AdaptiveLimiter {
    shared: Arc<LimiterState>,
}

struct LimiterState {
    in_flight: AtomicU32,
    limit: AtomicU32,
    /// The mean latency of the last window in microseconds. Zero before the first window.
    latency_us: AtomicU64,
    /// Overloads that were not added, because another thread held the estimator.
    missed_overloads: AtomicU32,
    /// Requests were shed since the last sample.
    has_shed: AtomicBool,
    estimator: Mutex<Estimator>,
    shares: Box<[f64]>,
    window: Duration,
    clock: Clock,
    metrics: AdaptiveMetrics,
}

impl AdaptiveLimiter {
    /// Creates a limiter with the default options.
    #[must_use]
    pub fn new(algorithm: impl LimitAlgorithm + 'static) -> Self {
        Self::builder(algorithm).build()
    }

    /// Creates a builder, which offers the options.
    pub fn builder(algorithm: impl LimitAlgorithm + 'static) -> AdaptiveLimiterBuilder {
        AdaptiveLimiterBuilder::new(Box::new(algorithm))
    }

    /// Counts a request in, and returns the number of requests in flight with it.
    pub(crate) fn admit(&self, class: Class) -> Result<u32, Overload> {
        let shared = &*self.shared;
        let limit = shared.share(shared.limit.load(Ordering::Relaxed), class);
        let mut in_flight = shared.in_flight.load(Ordering::Relaxed);
        loop {
            // A request that is shed writes to nothing that others read, so that a flood does not
            // slow them down.
            if in_flight >= limit {
                if !shared.has_shed.load(Ordering::Relaxed) {
                    shared.has_shed.store(true, Ordering::Relaxed);
                }
                return Err(Overload::new(in_flight, limit, shared.retry_after()));
            }
            let next = in_flight + 1;
            match shared.in_flight.compare_exchange_weak(
                in_flight,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(next),
                Err(current) => in_flight = current,
            }
        }
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.shared.limit.load(Ordering::Relaxed)
    }

    /// Returns the number of requests in flight.
    ///
    /// It can be above the limit for some time after the limit has fallen.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the mean latency of the last window. `None` before the first window.
    #[must_use]
    pub fn latency(&self) -> Option<Duration> {
        let latency_us = self.shared.latency_us.load(Ordering::Relaxed);
        (latency_us > 0).then(|| Duration::from_micros(latency_us))
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.shared.clock.now_us()
    }

    pub(crate) fn release(&self) {
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a sample.
    ///
    /// A sample whose thread meets another one here is dropped, because a request must not wait for
    /// statistics. An overload is kept for the next sample.
    pub(crate) fn record(&self, now_us: u64, sample: Sample) {
        let shared = &*self.shared;
        let mut estimator = match shared.estimator.try_lock() {
            Ok(estimator) => estimator,
            // An algorithm that has panicked may go on: the limit stays within its bounds.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if sample.signal == Signal::Overload {
                    shared.missed_overloads.fetch_add(1, Ordering::Relaxed);
                }
                return;
            }
        };
        estimator.add_overloads(shared.missed_overloads.swap(0, Ordering::Relaxed));
        if shared.has_shed.swap(false, Ordering::Relaxed) {
            estimator.add_shed();
        }
        let Some(estimate) = estimator.add(now_us, sample) else {
            return;
        };
        let before = shared.limit.swap(estimate.limit, Ordering::Relaxed);
        if let Some(latency_us) = estimate.latency_us {
            shared
                .latency_us
                .store(latency_us.max(1), Ordering::Relaxed);
        }
        drop(estimator);
        shared
            .metrics
            .record(estimate.limit, estimate.in_flight, estimate.latency_us);
        if before != estimate.limit {
            tracing::trace!(
                limit = estimate.limit,
                latency_us = estimate.latency_us,
                "concurrency limit changed"
            );
        }
    }
}

impl LimiterState {
    /// Returns the requests in flight up to which a class may add one. It is at least 1, so that a
    /// class without competition is never shut out.
    fn share(&self, limit: u32, class: Class) -> u32 {
        let class = usize::from(class.number()).min(self.shares.len().saturating_sub(1));
        match self.shares.get(class) {
            Some(&share) if share < 1.0 => ((f64::from(limit) * share) as u32).max(1),
            _ => limit,
        }
    }

    fn retry_after(&self) -> Duration {
        self.window.max(Duration::from_micros(
            self.latency_us.load(Ordering::Relaxed),
        ))
    }
}

impl AdaptiveLimiterBuilder {
    /// Builds the limiter.
    #[must_use]
    pub fn build(self) -> AdaptiveLimiter {
        let estimator = Estimator::new(
            self.algorithm,
            self.limits,
            self.initial_limit,
            self.window,
            self.min_samples,
        );
        AdaptiveLimiter {
            shared: Arc::new(LimiterState {
                in_flight: AtomicU32::new(0),
                limit: AtomicU32::new(estimator.limit()),
                latency_us: AtomicU64::new(0),
                missed_overloads: AtomicU32::new(0),
                has_shed: AtomicBool::new(false),
                estimator: Mutex::new(estimator),
                shares: self.shares,
                window: self.window,
                clock: self.clock,
                metrics: AdaptiveMetrics::new(&self.name),
            }),
        }
    }
}

impl Default for AdaptiveLimiter {
    /// Creates a limiter with the algorithm [`Gradient`] and the default options.
    fn default() -> Self {
        Self::new(Gradient::new())
    }
}

tollgate_core::debug_fields! { AdaptiveLimiter: limit = .limit(), in_flight = .in_flight(), .. }

/// Builds an [`AdaptiveLimiter`](crate::AdaptiveLimiter) with options.
///
/// ```
/// use std::time::Duration;
/// use tollgate_overload::{AdaptiveLimiter, Gradient};
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
    pub(crate) algorithm: Box<dyn LimitAlgorithm>,
    pub(crate) limits: RangeInclusive<u32>,
    pub(crate) initial_limit: u32,
    pub(crate) window: Duration,
    pub(crate) min_samples: u32,
    pub(crate) shares: Box<[f64]>,
    pub(crate) clock: Clock,
    pub(crate) name: Cow<'static, str>,
}

impl AdaptiveLimiterBuilder {
    pub(crate) fn new(algorithm: Box<dyn LimitAlgorithm>) -> Self {
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
    /// Choose the lowest limit so that the most important requests fit when the service is at its
    /// slowest: their number per second × the latency in seconds.
    ///
    /// # Panics
    ///
    /// Panics if the lowest limit is 0, or if it is above the highest one.
    pub fn limits(mut self, limits: RangeInclusive<u32>) -> Self {
        assert!(
            *limits.start() > 0,
            "the lowest limit must be at least 1, got 0"
        );
        assert!(
            !limits.is_empty(),
            "the lowest limit {} is above the highest one {}",
            limits.start(),
            limits.end()
        );
        self.limits = limits;
        self
    }

    /// Sets the limit at the start. The default is 20. A value outside of [`limits`](Self::limits)
    /// is moved to the nearest bound.
    pub fn initial_limit(mut self, limit: u32) -> Self {
        self.initial_limit = limit;
        self
    }

    /// Sets the length of a window. The algorithm computes a new limit at the end of each window.
    /// The default is 100 ms.
    ///
    /// A window with fewer than [`min_samples`](Self::min_samples) samples goes on until it has as
    /// many.
    pub fn window(mut self, length: Duration) -> Self {
        self.window = length;
        self
    }

    /// Sets the least number of samples in a window. The default is 10. A sample is a request that
    /// ended with another signal than [`Ignore`](crate::Signal::Ignore).
    pub fn min_samples(mut self, samples: u32) -> Self {
        self.min_samples = samples;
        self
    }

    /// Sets the share of the limit that each class of requests may use, the most important class
    /// first.
    ///
    /// The default is 100 %, 70 % and 50 %, for [`CRITICAL`](crate::Class::CRITICAL),
    /// [`NORMAL`](crate::Class::NORMAL) and [`LOW`](crate::Class::LOW). A
    /// request is shed when as many requests as the share of its class are in flight, whatever
    /// their classes. A share is rounded down to whole requests, and is at least one request.
    ///
    /// # Panics
    ///
    /// Panics if the list is empty, if a share is not above 0 and at most 1, or if a class has a
    /// greater share than the one before it.
    pub fn shares(mut self, shares: impl Into<Box<[f64]>>) -> Self {
        let shares = shares.into();
        assert!(!shares.is_empty(), "the list of shares is empty");
        for share in &shares {
            assert!(
                *share > 0.0 && *share <= 1.0,
                "a share must be above 0 and at most 1, got {share}"
            );
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
