use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    builder::AdaptiveBuilder,
    limiter::AdaptiveLimiter,
    shared::{AdaptiveBody, Shared},
    slot::Slot,
};
use crate::{
    drain::discard,
    rejection::{Problem, Respond},
};

/// Limits the requests in flight of a service, by its latency.
///
/// A request without a free slot is answered with 503, `Retry-After` and a problem document of the type
/// `temporary-reduced-capacity`, and the service is not called. A slot is given back when the *body* of the response ends,
/// fails or is dropped, so streams count for as long as they live.
///
/// The body of the response is a [`GuardedBody`](crate::body::GuardedBody) around that of the service. The layer reads
/// the body of a rejected request [as a `RateLimitLayer`
/// does](crate::RateLimitLayer#the-body-of-a-rejected-request).
///
/// ```
/// use http::{Request, Response};
/// use tollgate_tower::adaptive::{AdaptiveLayer, AdaptiveLimiter, Gradient, Priority};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = AdaptiveLimiter::builder(Gradient::new()).limits(1..=100).initial_limit(1).build();
/// let service = AdaptiveLayer::new(limiter.clone())
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::from("hello"))) }));
///
/// // Stands for a request in another task.
/// let slot = limiter.try_acquire(Priority::CRITICAL).unwrap();
/// let response = service.clone().oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.status(), 503);
/// assert_eq!(response.headers()["retry-after"], "1");
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
/// [`builder`](Self::builder) offers the options:
///
/// ```
/// use std::time::Duration;
/// use tollgate_tower::adaptive::{AdaptiveLayer, AdaptiveLimiter, Priority};
///
/// let layer = AdaptiveLayer::builder(AdaptiveLimiter::default())
///     .priority(|parts| match parts.uri.path() {
///         "/login" => Priority::CRITICAL,
///         "/export" => Priority::LOW,
///         _ => Priority::NORMAL,
///     })
///     .exempt(|parts| parts.uri.path() == "/healthz")
///     .retry_jitter(Duration::from_secs(2))
///     .build();
/// # let _ = layer;
/// ```
pub struct AdaptiveLayer<R = Problem> {
    shared: Arc<Shared<R>>,
}

impl AdaptiveLayer {
    /// Creates a layer with the default options. All requests are [critical](super::Priority::CRITICAL): each may use the
    /// whole limit.
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
        let Self { limiter, options, responder } = self;
        AdaptiveLayer { shared: Arc::new(Shared { limiter, options, responder }) }
    }
}

impl<S, R> Layer<S> for AdaptiveLayer<R> {
    type Service = Adaptive<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Adaptive::new(inner, Arc::clone(&self.shared))
    }
}

impl<R> Clone for AdaptiveLayer<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<R> fmt::Debug for AdaptiveLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLayer").field("limiter", &self.shared.limiter).finish_non_exhaustive()
    }
}

/// Limits the requests in flight of an inner service. [`AdaptiveLayer`](crate::adaptive::AdaptiveLayer) creates it.
///
/// `poll_ready` forwards to the inner service: a slot is taken when the request arrives.
pub struct Adaptive<S, R = Problem> {
    inner: S,
    shared: Arc<Shared<R>>,
}

impl<S, R> Adaptive<S, R> {
    pub(super) fn new(inner: S, shared: Arc<Shared<R>>) -> Self {
        Self { inner, shared }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service for changes.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Removes the limit and returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for Adaptive<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: 'static,
    ResBody: Body,
    R: Respond<ResBody>,
{
    type Response = Response<AdaptiveBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, ResBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let slot = match self.shared.admit(&parts) {
            Ok(slot) => slot,
            Err(overload) => {
                let response = self.shared.reject(&overload, &parts);
                discard(&parts, body);
                return ResponseFuture::rejected(response);
            }
        };
        let request = Request::from_parts(parts, body);
        ResponseFuture::calling(self.inner.call(request), slot, &self.shared)
    }
}

impl<S: Clone, R> Clone for Adaptive<S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for Adaptive<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive")
            .field("inner", &self.inner)
            .field("limiter", &self.shared.limiter)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// Resolves to the response of an [`Adaptive`](crate::adaptive::Adaptive) service.
    ///
    /// Dropping the future gives the slot of the request back.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, B, R>
    where
        B: Body,
    {
        #[pin]
        state: State<F, B, R>,
    }
}

pin_project! {
    // Written by hand, because a named future needs no box.
    #[project = StateProj]
    enum State<F, B, R>
    where
        B: Body,
    {
        Rejected { response: Option<Response<AdaptiveBody<B>>> },
        Calling { #[pin] future: F, slot: Option<Slot>, shared: Arc<Shared<R>> },
    }
}

impl<F, B: Body, R> ResponseFuture<F, B, R> {
    pub(super) fn rejected(response: Response<AdaptiveBody<B>>) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    pub(super) fn calling(future: F, slot: Option<Slot>, shared: &Arc<Shared<R>>) -> Self {
        Self { state: State::Calling { future, slot, shared: Arc::clone(shared) } }
    }
}

impl<F, B, R, E> Future for ResponseFuture<F, B, R>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<AdaptiveBody<B>>, E>;

    /// # Panics
    ///
    /// Panics when it is polled after it returned a rejection.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Rejected { response } => Poll::Ready(Ok(response.take().expect("the response is taken once"))),
            StateProj::Calling { future, slot, shared } => Poll::Ready(match ready!(future.poll(cx)) {
                Ok(response) => Ok(shared.complete(response, slot.take())),
                Err(error) => {
                    shared.fail(slot.take());
                    Err(error)
                }
            }),
        }
    }
}

impl<F, B: Body, R> fmt::Debug for ResponseFuture<F, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Rejected { .. } => "ResponseFuture::Rejected",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}
