//! The default algorithm: it compares the latency of a window with that of a service without a
//! queue.
//! How that baseline is found is in `baseline.rs`, samples are gathered in `estimator.rs`.

use super::{LimitAlgorithm, assert_share};
use crate::{baseline::Baseline, window::SampleWindow};

/// Compares the latency of the last window with the latency of the service without a queue.
///
/// The latency without a queue is the *baseline*. The quotient is the *gradient*. While the latency
/// stays below the baseline times the tolerance, the gradient is 1, and the limit grows. Its square
/// root is the room for a *queue*. When requests begin to wait in the service, the gradient falls,
/// and the limit with it:
///
/// ```text
/// gradient = baseline × tolerance ÷ latency, between 0.5 and 1
/// target   = limit × gradient + √limit
/// limit    = limit + smoothing × (target − limit)
/// ```
///
/// A service that works on *c* requests at a time gets a limit of about 1.5 *c* + √*c*. So the
/// service always has *c* requests to work on, and the others wait for about half of the service
/// time.
///
/// The formula comes from `Gradient2Limit` in Netflix'
/// [concurrency-limits](https://github.com/Netflix/concurrency-limits). The baseline differs. There
/// it is a mean of all windows, and a service that is always saturated gets a limit that grows up
/// to its maximum. Here windows with a queue do not raise the baseline:
///
/// - When the service was saturated for [`probe_every`](Self::probe_every) windows, the limit falls
///   to a third, until no more requests than that are in flight. This usually takes two windows.
///   Then the baseline is measured again.
/// - When the latency stays the same with a third fewer requests in flight, the service itself has
///   become slow. The baseline becomes this latency, and the limit falls no further.
///
/// ```
/// use tollgate_overload::{AdaptiveLimiter, Gradient};
///
/// let limiter = AdaptiveLimiter::builder(Gradient::new().tolerance(2.0)).limits(10..=500).build();
/// assert_eq!(limiter.limit(), 20);
/// ```
#[derive(Clone, Debug)]
pub struct Gradient {
    tolerance: f64,
    smoothing: f64,
    baseline: Baseline,
}

impl Gradient {
    /// Creates the algorithm with the defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            tolerance: 1.5,
            smoothing: 0.2,
            baseline: Baseline::new(),
        }
    }

    /// Sets the multiple of the baseline from which on a latency counts as slow. The default is
    /// 1.5.
    ///
    /// Raise it when the latencies of the service vary much even without load.
    ///
    /// # Panics
    ///
    /// Panics if the tolerance is below 1. In a `const` this fails the build.
    #[must_use]
    pub const fn tolerance(mut self, tolerance: f64) -> Self {
        assert!(
            tolerance >= 1.0 && tolerance < f64::INFINITY,
            "the tolerance must be a number of at least 1"
        );
        self.tolerance = tolerance;
        self
    }

    /// Sets the share of the way to the target by which one window moves the limit. The default is
    /// 0.2.
    ///
    /// # Panics
    ///
    /// Panics if the share is not between 0 and 1. In a `const` this fails the build.
    #[must_use]
    pub const fn smoothing(mut self, smoothing: f64) -> Self {
        assert_share(smoothing, "the smoothing must be between 0 and 1");
        self.smoothing = smoothing;
        self
    }

    baseline_options!();
}

impl LimitAlgorithm for Gradient {
    fn next_limit(&mut self, window: &SampleWindow) -> f64 {
        let limit = window.limit();
        self.baseline.next_limit(window, |baseline, latency| {
            let gradient = (self.tolerance * baseline / latency).clamp(0.5, 1.0);
            let target = limit * gradient + limit.sqrt();
            limit + self.smoothing * (target - limit)
        })
    }
}

impl Default for Gradient {
    fn default() -> Self {
        Self::new()
    }
}
