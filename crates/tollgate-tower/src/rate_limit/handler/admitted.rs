use std::fmt;

use http::Response;

use crate::rate_limit::answer::Admission;

/// Holds what is left to do for a request that a [`HandlerLimiter`](super::HandlerLimiter) has admitted.
///
/// Dropping it counts as a request that was [cancelled](crate::Outcome::Cancelled), which matters with the options
/// [`final_cost`](crate::RateLimitBuilder::final_cost), [`charge_on`](crate::RateLimitBuilder::charge_on) and
/// [`charge_after`](crate::RateLimitBuilder::charge_after).
#[must_use = "the response carries the rate limit headers only after `complete`"]
pub struct Admitted(Admission);

impl Admitted {
    pub(super) fn new(admission: Admission) -> Self {
        Self(admission)
    }

    /// Completes the response of the handler.
    ///
    /// Adds the rate limit headers, and settles the final cost where the layer has one. Headers of the same format that
    /// the response has already are combined with them, as those of [stacked layers](crate#stacked-layers).
    pub fn complete<B>(mut self, mut response: Response<B>) -> Response<B> {
        self.0.complete(&mut response);
        response
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").finish_non_exhaustive()
    }
}
