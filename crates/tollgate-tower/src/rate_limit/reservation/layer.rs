use std::fmt;

use tower_layer::Layer;

use super::{builder::ReservationBuilder, service::ReservationService};
use crate::{RateLimitLayer, key::BoxedKey, rejection::Problem};

/// Limits the requests of a service by a cost that is known when the response body ends.
///
/// It is a [`RateLimitLayer`] that charges an estimate, and settles what the [`Meter`](crate::Meter) in the extensions
/// of the request has counted when the body of the response ends, fails or is dropped. The [module](crate::rate_limit::reservation)
/// lists all ends. The body of the response is a [`GuardedBody`](crate::body::GuardedBody) around that of the service:
/// its frames and trailers pass unchanged.
///
/// The rate limit headers show the state after the reservation. A difference of the final cost is not in them.
///
/// [`RateLimitBuilder::reserve`](crate::RateLimitBuilder::reserve) builds it.
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::BodyExt;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{Meter, RateLimitLayer, key::Header};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let policies = [
///     Policy::fixed_window("requests", Quota::per_day(60)),
///     Policy::fixed_window("tokens", Quota::per_day(10_000)),
/// ];
/// let limiter = Limiter::new(MemoryStore::new(), policies);
/// let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
///     .reserve(|_request| [("requests", 1), ("tokens", 850)])
///     .build();
///
/// // A stream would count each of its parts.
/// let service = layer.layer(service_fn(|request: Request<()>| async move {
///     let meter = request.extensions().get::<Meter>().unwrap();
///     meter.counter("tokens").unwrap().add(42);
///     Ok::<_, std::convert::Infallible>(Response::new(String::from("six times nine")))
/// }));
/// let request = Request::builder().header("x-api-key", "acme").body(()).unwrap();
/// let response = service.oneshot(request).await.unwrap();
/// let tokens_left = async || limiter.peek("acme").await.unwrap().state("tokens").unwrap().remaining();
/// assert_eq!(tokens_left().await, 9_150);
///
/// response.into_body().collect().await.unwrap();
/// assert_eq!(tokens_left().await, 9_958);
/// # }
/// ```
pub struct ReservationLayer<K = BoxedKey, R = Problem> {
    layer: RateLimitLayer<K, R>,
}

// `build` is defined here and not in `builder.rs`, so that the two files do not import each other.
impl<K, R> ReservationBuilder<K, R> {
    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> ReservationLayer<K, R> {
        let Self { builder, estimate, options } = self;
        ReservationLayer { layer: builder.reserving(estimate, options).build() }
    }
}

impl<S, K, R> Layer<S> for ReservationLayer<K, R> {
    type Service = ReservationService<S, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        ReservationService::new(self.layer.layer(inner))
    }
}

impl<K, R> Clone for ReservationLayer<K, R> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone() }
    }
}

impl<K, R> fmt::Debug for ReservationLayer<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservationLayer").field("layer", &self.layer).finish()
    }
}
