//! The reservation that a handler makes, when the estimate is in the body of the request.
//! A layer reserves in `layer.rs`. What was reserved is settled in `metered.rs`.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
};

use http::request::Parts;
use tollgate_core::{Costs, Key};

use super::{
    metered::MeteredReservation,
    options::{ReserveOptions, reserve_options},
};
use crate::rate_limit::handler::{Admitted, HandlerLimiter, Rejected};

/// Builds a reservation inside a handler. [`HandlerLimiter::reserve`] creates it. Await it to
/// reserve.
#[must_use = "nothing is reserved until the builder is awaited"]
pub struct HandlerReserve<'a, B> {
    limiter: &'a HandlerLimiter<B>,
    request: &'a mut Parts,
    key: Key,
    estimate: Costs,
    options: ReserveOptions,
}

impl<B: 'static> HandlerLimiter<B> {
    /// Charges an estimate that the handler has read from the body of the request. The real cost is
    /// settled when the response ends.
    ///
    /// Await the returned builder: it resolves to an [`Admitted`], which completes the response,
    /// and a [`MeteredReservation`]. Put the reservation into the response body with
    /// [`guard_response`](crate::body::guard_response), or settle it with
    /// [`commit`](MeteredReservation::commit). Its [`Meter`](crate::Meter) is also in the
    /// extensions of the request. As with
    /// [`RateLimitBuilder::reserve`](crate::RateLimitBuilder::reserve), the options for costs do
    /// not apply, and [`wait`](crate::RateLimitBuilder::wait) applies to leaky buckets alone. The
    /// priority is that of [`check_costs`](Self::check_costs).
    ///
    /// ```
    /// use http::{Request, Response};
    /// use http_body_util::BodyExt;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::{HandlerLimiter, RateLimitLayer, body::guard_response, key::Global};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let requests = Limiter::new(MemoryStore::new(), Policy::fixed_window("all", Quota::per_day(1000)));
    /// let tokens = Limiter::new(MemoryStore::new(), Policy::window_from_first_hit("tokens", Quota::per_day(10_000)));
    /// let tokens: HandlerLimiter<String> = RateLimitLayer::new(requests, Global).handler_limiter(tokens);
    ///
    /// // The handler has read `max_tokens` from the body of the request.
    /// let max_tokens = 850_u64;
    /// # let (mut request, ()) = Request::new(()).into_parts();
    /// let (admitted, reservation) = tokens.reserve(&mut request, "acme", Cost::new(max_tokens)).await.unwrap();
    /// reservation.meter().add(42);
    /// let response = guard_response(admitted.complete(Response::new(String::from("six times nine"))), reservation);
    /// assert_eq!(response.headers()["ratelimit"], r#""tokens";r=9150;t=86400"#);
    ///
    /// response.into_body().collect().await.unwrap();
    /// assert_eq!(tokens.limiter().peek("acme").await.unwrap().state("tokens").unwrap().remaining(), 9_958);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`check_costs`](Self::check_costs). The status is also 500 when the store has no
    /// reservations.
    pub fn reserve<'a>(
        &'a self,
        request: &'a mut Parts,
        key: impl Into<Key>,
        estimate: impl Into<Costs>,
    ) -> HandlerReserve<'a, B> {
        let (key, estimate) = (key.into(), estimate.into());
        HandlerReserve {
            limiter: self,
            request,
            key,
            estimate,
            options: ReserveOptions::default(),
        }
    }
}

impl<B> HandlerReserve<'_, B> {
    reserve_options!();
}

impl<'a, B: 'static> IntoFuture for HandlerReserve<'a, B> {
    type Output = Result<(Admitted, MeteredReservation), Rejected<B>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self {
            limiter,
            request,
            key,
            estimate,
            options,
        } = self;
        Box::pin(limiter.reserve_with(request, key, estimate, options))
    }
}

impl<B> fmt::Debug for HandlerReserve<'_, B> {
    /// Leaves out the key, which may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerReserve")
            .field("estimate", &self.estimate)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
