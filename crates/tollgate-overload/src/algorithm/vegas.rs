//! The algorithm that estimates how many requests wait in the service, and keeps that number
//! between two bounds.
//! How the latency without a queue is found is in `baseline.rs`.

use super::LimitAlgorithm;
use crate::{baseline::Baseline, window::SampleWindow};

/// Keeps the number of requests that wait in the service between two bounds.
///
/// From the latency, the algorithm computes how many of the requests in flight wait:
/// `limit × (1 − baseline ÷ latency)`. The baseline is the latency without a queue. While fewer
/// than the lower bound wait, the limit rises. While more than the upper bound wait, it falls. Both
/// bounds grow with the logarithm of the limit. This is the rule of TCP Vegas, as in `VegasLimit`
/// of Netflix' [concurrency-limits](https://github.com/Netflix/concurrency-limits).
///
/// Compared with [`Gradient`](super::Gradient) it keeps a shorter queue, and reacts to smaller
/// changes: use it for a service whose requests all take about the same time.
///
/// ```
/// use tollgate_overload::{AdaptiveLimiter, Vegas};
///
/// let limiter = AdaptiveLimiter::new(Vegas::new());
/// assert_eq!(limiter.limit(), 20);
/// ```
#[derive(Clone, Debug)]
pub struct Vegas {
    baseline: Baseline,
}

impl Vegas {
    /// Creates the algorithm with the defaults.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            baseline: Baseline::new(),
        }
    }

    baseline_options!();
}

impl LimitAlgorithm for Vegas {
    fn next_limit(&mut self, window: &SampleWindow) -> f64 {
        let limit = window.limit();
        self.baseline.next_limit(window, |baseline, latency| {
            let step = limit.log10().max(1.0);
            let waiting = limit * (1.0 - baseline / latency);
            if waiting <= step {
                limit + 6.0 * step
            } else if waiting < 3.0 * step {
                limit + step
            } else if waiting > 6.0 * step {
                limit - step
            } else {
                limit
            }
        })
    }
}

impl Default for Vegas {
    fn default() -> Self {
        Self::new()
    }
}
