//! The layer: which step of `Gate` has which part in a request's life.
//! What happens in each step is in `request.rs`, the limit itself in `limiter.rs`.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use tollgate_tower::{
    Respond,
    body::GuardedBody,
    gate::{Gate, Gated, Verdict},
    rejection::Problem,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    builder::AdaptiveBuilder,
    limiter::AdaptiveLimiter,
    request::{AdaptiveBody, HeldSlot, LayerState},
};

/// Limits the requests in flight of a service, by its latency.
///
/// Each request in flight takes a slot of an [`AdaptiveLimiter`]. Without a free slot the layer
/// responds with 503, `Retry-After` and a problem document of the type
/// `temporary-reduced-capacity`, and the service is not called. A slot is given back when the
/// *body* of the response ends, fails or is dropped, so streams count for as long as they live.
///
/// The body of the response is a [`GuardedBody`](tollgate_tower::body::GuardedBody) around the body of the
/// service. The layer reads the body of a rejected request [as a `RateLimitLayer`
/// does](tollgate_tower::RateLimitLayer#the-body-of-a-rejected-request).
///
/// ```
/// use http::{Request, Response};
/// use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Gradient, Class};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = AdaptiveLimiter::builder(Gradient::new()).limits(1..=100).initial_limit(1).build();
/// let service = AdaptiveLayer::new(limiter.clone())
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::from("hello"))) }));
///
/// // Stands for a request in another task.
/// let slot = limiter.try_acquire(Class::CRITICAL).unwrap();
/// let response = service.clone().oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.status(), 503);
/// assert!(response.headers().contains_key("retry-after"));
///
/// drop(slot);
/// let response = service.oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.status(), 200);
/// assert_eq!(limiter.in_flight(), 1);
/// drop(response);
/// assert_eq!(limiter.in_flight(), 0);
/// # }
/// ```
///
/// [`builder`](Self::builder) offers the options. The [module](crate) has an example.
pub struct AdaptiveLayer<R = Problem> {
    shared: Arc<LayerState<R>>,
}

impl AdaptiveLayer {
    /// Creates a layer with the default options. All requests are
    /// [critical](crate::Class::CRITICAL): each may use the whole limit.
    #[must_use]
    pub fn new(limiter: AdaptiveLimiter) -> Self {
        Self::builder(limiter).build()
    }

    /// Creates a builder, which offers the options.
    pub fn builder(limiter: AdaptiveLimiter) -> AdaptiveBuilder {
        AdaptiveBuilder::new(limiter)
    }
}

impl<R> AdaptiveBuilder<R> {
    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> AdaptiveLayer<R> {
        AdaptiveLayer {
            shared: Arc::new(self.shared),
        }
    }
}

impl<S, R> Layer<S> for AdaptiveLayer<R> {
    type Service = AdaptiveLimit<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, self.clone())
    }
}

impl<R> Clone for AdaptiveLayer<R> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

tollgate_core::debug_fields! { AdaptiveLayer<R>: limiter = .shared.limiter, .. }

/// Limits the requests in flight of an inner service. [`AdaptiveLayer`] creates it.
pub type AdaptiveLimit<S, R = Problem> = Gated<S, AdaptiveLayer<R>>;

impl<S, R, ReqBody, ResBody> Gate<S, ReqBody> for AdaptiveLayer<R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    R: Respond<ResBody>,
    ResBody: Body,
{
    type Pass = Option<HeldSlot<R>>;
    type Wait = Infallible;
    type Response = Response<AdaptiveBody<ResBody>>;

    fn admit(&self, parts: &mut Parts) -> Verdict<Self::Pass, Infallible, S::Response> {
        match self.shared.admit(parts) {
            Ok(slot) => Verdict::Admit(slot),
            Err(overload) => Verdict::Reject(self.shared.reject(&overload, parts)),
        }
    }

    fn poll_wait(
        &self,
        never: &mut Infallible,
        _: &mut Parts,
        _: &mut Context<'_>,
    ) -> Poll<Verdict<Self::Pass, Infallible, S::Response>> {
        match *never {}
    }

    fn hold(_: &mut S, never: &Infallible) -> S {
        match *never {}
    }

    fn complete(slot: Option<&mut Self::Pass>, response: S::Response) -> Self::Response {
        match slot.and_then(Option::take) {
            Some(slot) => slot.complete(response),
            None => response.map(GuardedBody::unguarded),
        }
    }

    fn fail(slot: &mut Self::Pass) {
        if let Some(slot) = slot.take() {
            slot.fail();
        }
    }
}
