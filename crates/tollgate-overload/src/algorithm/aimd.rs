//! The algorithm for a known target of the latency: it adds while requests are fast, and takes a
//! share away when they are slow.
//! It needs no baseline, unlike `gradient.rs` and `vegas.rs`.

use std::time::Duration;

use super::{LimitAlgorithm, assert_share};
use crate::window::SampleWindow;

/// Adds to the limit while the service is fast, and multiplies it by a factor below one when it is
/// slow.
///
/// Additive increase and multiplicative decrease is the rule of TCP Reno ([RFC
/// 5681](https://www.rfc-editor.org/rfc/rfc5681)). It needs to know which latency is slow. Use it
/// when the service has a target for its latency. Use [`Gradient`](super::Gradient) when it has
/// none.
///
/// The limit falls after a window whose mean latency is above the threshold, or in which the
/// service was [overloaded](SampleWindow::is_overloaded). It rises after a window that used at
/// least half of the limit. Otherwise it stays.
///
/// ```
/// use std::time::Duration;
/// use tollgate_overload::{AdaptiveLimiter, Aimd};
///
/// let limiter = AdaptiveLimiter::new(Aimd::new(Duration::from_millis(250)));
/// assert_eq!(limiter.limit(), 20);
/// ```
#[derive(Clone, Debug)]
pub struct Aimd {
    threshold: Duration,
    increase: f64,
    backoff: f64,
}

impl Aimd {
    /// Creates the algorithm. Windows with a mean latency above `threshold` lower the limit.
    #[must_use]
    pub const fn new(threshold: Duration) -> Self {
        Self {
            threshold,
            increase: 1.0,
            backoff: 0.9,
        }
    }

    /// Sets the amount that is added after a fast window. The default is 1.
    ///
    /// # Panics
    ///
    /// Panics if the amount is not above 0. In a `const` this fails the build.
    #[must_use]
    pub const fn increase(mut self, amount: f64) -> Self {
        assert!(
            amount > 0.0 && amount < f64::INFINITY,
            "the increase must be a number above 0"
        );
        self.increase = amount;
        self
    }

    /// Sets the factor after a slow window. The default is 0.9.
    ///
    /// # Panics
    ///
    /// Panics if the factor is not between 0 and 1. In a `const` this fails the build.
    #[must_use]
    pub const fn backoff(mut self, factor: f64) -> Self {
        assert_share(factor, "the backoff factor must be between 0 and 1");
        self.backoff = factor;
        self
    }
}

impl LimitAlgorithm for Aimd {
    fn next_limit(&mut self, window: &SampleWindow) -> f64 {
        if window.is_overloaded()
            || window
                .latency()
                .is_none_or(|latency| latency > self.threshold)
        {
            window.limit() * self.backoff
        } else if window.is_limited() {
            window.limit() + self.increase
        } else {
            window.limit()
        }
    }
}
