//! Algorithms that compute a concurrency limit from windows of samples.
//! Windows and samples are made in `estimator.rs`; an algorithm sees neither a request nor a clock.

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
