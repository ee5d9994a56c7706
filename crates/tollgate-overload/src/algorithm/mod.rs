//! Algorithms that compute a concurrency limit from windows of samples.
//! Windows and samples are made in `estimator.rs`; an algorithm sees neither a request nor a clock.

/// Writes the options that all algorithms with a baseline have. Before the modules, which use it.
macro_rules! baseline_options {
    () => {
        /// Sets the factor after a window in which the service was
        /// [overloaded](crate::SampleWindow::is_overloaded). The default is 0.9.
        ///
        /// # Panics
        ///
        /// Panics if the factor is not between 0 and 1. In a `const` this fails the build.
        #[must_use]
        pub const fn backoff(mut self, factor: f64) -> Self {
            crate::algorithm::assert_share(factor, "the backoff factor must be between 0 and 1");
            self.baseline = self.baseline.backoff(factor);
            self
        }

        /// Sets over how many windows the baseline is averaged. The default is 600: a minute at the
        /// default length.
        #[must_use]
        pub const fn baseline_windows(mut self, windows: u32) -> Self {
            self.baseline = self.baseline.windows(windows);
            self
        }

        /// Sets the number of saturated windows after which the limit is lowered to a third to measure
        /// the baseline. The default is 600.
        ///
        /// `u32::MAX` turns the probes off.
        #[must_use]
        pub const fn probe_every(mut self, windows: u32) -> Self {
            self.baseline = self.baseline.probe_after(windows);
            self
        }
    };
}

mod aimd;
mod gradient;
mod vegas;

use std::fmt;

pub use aimd::Aimd;
pub use gradient::Gradient;
pub use vegas::Vegas;

use super::window::SampleWindow;

/// Computes a concurrency limit from the latencies of finished requests.
///
/// An algorithm is a state machine without a clock: it receives one [`SampleWindow`] after the
/// other, and returns the limit for the next window. [`Gradient`], [`Vegas`] and [`Aimd`] implement
/// it. Implement it for a limit that depends on something else, such as the length of a queue in
/// the service.
///
/// ```
/// use tollgate_overload::{AdaptiveLimiter, LimitAlgorithm, SampleWindow};
///
/// /// Allows half of the requests after each window in which the service was overloaded.
/// #[derive(Debug)]
/// struct Halve;
///
/// impl LimitAlgorithm for Halve {
///     fn next_limit(&mut self, window: &SampleWindow) -> f64 {
///         if window.is_overloaded() { window.limit() / 2.0 } else { window.limit() + 1.0 }
///     }
/// }
///
/// let limiter = AdaptiveLimiter::builder(Halve).limits(10..=100).initial_limit(50).build();
/// assert_eq!(limiter.limit(), 50);
/// ```
pub trait LimitAlgorithm: fmt::Debug + Send {
    /// Returns the limit for the next window.
    ///
    /// The limiter keeps the fractional part, so that a limit can grow by less than one in a
    /// window. A limit outside of the [bounds](super::AdaptiveLimiterBuilder::limits) is moved to
    /// the nearest bound. If the result is not a number, the old limit stays.
    fn next_limit(&mut self, window: &SampleWindow) -> f64;
}

impl<A: LimitAlgorithm + ?Sized> LimitAlgorithm for Box<A> {
    fn next_limit(&mut self, window: &SampleWindow) -> f64 {
        (**self).next_limit(window)
    }
}

/// Checks a factor that must be between zero and one.
const fn assert_share(share: f64, message: &str) {
    if !(share > 0.0 && share < 1.0) {
        panic!("{}", message);
    }
}
