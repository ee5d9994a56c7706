use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate::ConcurrencyLimiter;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    held::PermitBody,
    in_flight::{AcquireFuture, InFlight},
    shared::Shared,
};
use crate::{
    drain::discard,
    key::{BoxedKey, KeyExtractor},
    labels::MetricLabels,
    rejection::{Problem, Respond},
};

/// Limits the requests of each key that a service works on at the same time.
///
/// The permits belong to a [`ConcurrencyLimiter`]. A request waits for one for up to the [longest
/// wait](tollgate::Concurrency::max_wait) of the limit, which is zero by default, and in a [bounded
/// number](tollgate::Concurrency::max_waiting). Dropping the request leaves the queue. The body of the response is a
/// [`PermitBody`](super::PermitBody) around that of the service. The [module](crate::concurrency) has an example.
///
/// The layer reads the body of a rejected request [as a `RateLimitLayer`
/// does](crate::RateLimitLayer#the-body-of-a-rejected-request).
///
/// [`builder`](Self::builder) offers the options:
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Concurrency, ConcurrencyLimiter, MemoryStore};
/// use tollgate_tower::{concurrency::ConcurrencyLayer, key::Global};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let limiter = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("reports", 1));
/// let service = ConcurrencyLayer::builder(limiter.clone(), Global)
///     .service_unavailable()
///     .build()
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
///
/// // Stands for a request in another task.
/// let _permit = limiter.acquire("all").await?;
/// let response = service.oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.status(), 503);
/// assert_eq!(response.headers()["retry-after"], "1");
/// # Ok(()) }
/// ```
pub struct ConcurrencyLayer<K = BoxedKey, R = Problem> {
    shared: Arc<Shared<K, R>>,
}

impl<K: KeyExtractor> ConcurrencyLayer<K> {
    /// Creates a layer with the default options. `key` finds the key of a request.
    #[must_use]
    pub fn new(limiter: ConcurrencyLimiter, key: K) -> Self {
        Self::builder(limiter, key).build()
    }

    /// Creates a builder, which offers the options.
    pub fn builder(limiter: ConcurrencyLimiter, key: K) -> ConcurrencyBuilder<K> {
        ConcurrencyBuilder::new(limiter, key)
    }
}

impl<K, R> ConcurrencyBuilder<K, R> {
    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> ConcurrencyLayer<K, R> {
        ConcurrencyLayer { shared: Arc::new(Shared::new(self)) }
    }
}

impl<S, K, R> Layer<S> for ConcurrencyLayer<K, R> {
    type Service = ConcurrencyService<S, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        ConcurrencyService::new(inner, Arc::clone(&self.shared))
    }
}

impl<K, R> Clone for ConcurrencyLayer<K, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K, R> fmt::Debug for ConcurrencyLayer<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLayer").field("limiter", &self.shared.limiter).finish_non_exhaustive()
    }
}

/// Limits the requests of an inner service that are in flight. [`ConcurrencyLayer`](crate::concurrency::ConcurrencyLayer) creates it.
///
/// `poll_ready` forwards to the inner service: a permit is taken when the request arrives.
pub struct ConcurrencyService<S, K = BoxedKey, R = Problem> {
    inner: S,
    shared: Arc<Shared<K, R>>,
}

impl<S, K, R> ConcurrencyService<S, K, R> {
    pub(super) fn new(inner: S, shared: Arc<Shared<K, R>>) -> Self {
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

impl<S, K, R, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyService<S, K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ReqBody: 'static,
    ResBody: Body,
{
    type Response = Response<PermitBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, R, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match self.shared.key(&parts) {
            Ok(None) => {
                let request = Request::from_parts(parts, body);
                ResponseFuture::calling(self.inner.call(request), InFlight::EXEMPT, &self.shared)
            }
            Ok(Some(key)) => {
                // The future takes the service that is ready. Its clone has to become ready before the next call.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                let acquire = self.shared.acquire(key);
                ResponseFuture::acquiring(PendingRequest { acquire, ready, parts, body }, &self.shared)
            }
            Err(error) => {
                let response = self.shared.reject_without_key(&error, &parts);
                discard(&parts, body);
                ResponseFuture::rejected(response, &self.shared)
            }
        }
    }
}

impl<S: Clone, K, R> Clone for ConcurrencyService<S, K, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, K, R> fmt::Debug for ConcurrencyService<S, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyService")
            .field("inner", &self.inner)
            .field("limiter", &self.shared.limiter)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// Resolves to the response of a [`ConcurrencyService`](crate::concurrency::ConcurrencyService).
    ///
    /// Dropping the future leaves the queue, and gives the permit of the request back.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, R, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future, S::Response>,
        shared: Arc<Shared<K, R>>,
    }
}

pin_project! {
    // Written by hand, because a named future needs no box.
    #[project = StateProj]
    enum State<S, B, F, A> {
        Rejected { response: Option<A> },
        Acquiring { pending: Option<Box<PendingRequest<S, B>>> },
        Calling { #[pin] future: F, in_flight: InFlight },
    }
}

/// Stores a request until it has a permit.
pub(super) struct PendingRequest<S, B> {
    pub(super) acquire: AcquireFuture,
    /// The service that was ready when the request arrived.
    pub(super) ready: S,
    pub(super) parts: Parts,
    pub(super) body: B,
}

impl<S: Service<Request<B>>, K, R, B> ResponseFuture<S, K, R, B> {
    pub(super) fn rejected(response: S::Response, shared: &Arc<Shared<K, R>>) -> Self {
        Self { state: State::Rejected { response: Some(response) }, shared: Arc::clone(shared) }
    }

    pub(super) fn acquiring(pending: PendingRequest<S, B>, shared: &Arc<Shared<K, R>>) -> Self {
        Self { state: State::Acquiring { pending: Some(Box::new(pending)) }, shared: Arc::clone(shared) }
    }

    pub(super) fn calling(future: S::Future, in_flight: InFlight, shared: &Arc<Shared<K, R>>) -> Self {
        Self { state: State::Calling { future, in_flight }, shared: Arc::clone(shared) }
    }
}

impl<S, K, R, ReqBody, ResBody> Future for ResponseFuture<S, K, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    R: Respond<ResBody>,
    ReqBody: 'static,
    ResBody: Body,
{
    type Output = Result<Response<PermitBody<ResBody>>, S::Error>;

    /// # Panics
    ///
    /// Panics when it is polled after it returned the response.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Rejected { response } => {
                    let response = response.take().expect("the response is taken once");
                    return Poll::Ready(Ok(response.map(PermitBody::unguarded)));
                }
                StateProj::Acquiring { pending } => {
                    let waiting = pending.as_mut().expect("the request is taken once");
                    let outcome = ready!(waiting.acquire.as_mut().poll(cx));
                    match this.shared.judge(outcome, &waiting.parts) {
                        Ok(in_flight) => {
                            let PendingRequest { mut ready, parts, body, .. } =
                                *pending.take().expect("the request is taken once");
                            State::Calling { future: ready.call(Request::from_parts(parts, body)), in_flight }
                        }
                        Err(response) => {
                            let PendingRequest { parts, body, .. } =
                                *pending.take().expect("the request is taken once");
                            discard(&parts, body);
                            State::Rejected { response: Some(response) }
                        }
                    }
                }
                StateProj::Calling { future, in_flight } => match in_flight.poll_lost(cx) {
                    // The next state drops the future of the service.
                    Poll::Ready(request) => State::Rejected { response: Some(this.shared.reject_lost(&request)) },
                    Poll::Pending => {
                        return Poll::Ready(match ready!(future.poll(cx)) {
                            Ok(response) => Ok(in_flight.complete(response)),
                            Err(error) => {
                                in_flight.fail();
                                Err(error)
                            }
                        });
                    }
                },
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, K, R, B> fmt::Debug for ResponseFuture<S, K, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Rejected { .. } => "ResponseFuture::Rejected",
            State::Acquiring { .. } => "ResponseFuture::Acquiring",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}

/// Builds a [`ConcurrencyLayer`](crate::concurrency::ConcurrencyLayer) with options.
///
/// [`ConcurrencyLayer::builder`](crate::concurrency::ConcurrencyLayer::builder) creates it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct ConcurrencyBuilder<K, R = Problem> {
    pub(super) limiter: ConcurrencyLimiter,
    pub(super) key: K,
    pub(super) options: Options,
    pub(super) responder: R,
}

/// Stores the options of a layer.
pub(super) struct Options {
    pub(super) exempt: Option<Exemption>,
    /// Tells whether a request without a permit is answered with 503 instead of 429.
    pub(super) is_unavailable: bool,
    pub(super) has_headers: bool,
    pub(super) retry_jitter: Duration,
    pub(super) labels: MetricLabels,
}

/// Tells whether a request is exempt. Boxed, so that the closure does not appear in the type of the layer.
type Exemption = Box<dyn Fn(&Parts) -> bool + Send + Sync>;

impl<K> ConcurrencyBuilder<K> {
    pub(super) fn new(limiter: ConcurrencyLimiter, key: K) -> Self {
        let options = Options {
            exempt: None,
            is_unavailable: false,
            has_headers: true,
            retry_jitter: Duration::ZERO,
            labels: MetricLabels::default(),
        };
        Self { limiter, key, options, responder: Problem::new() }
    }
}

impl<K, R> ConcurrencyBuilder<K, R> {
    /// Exempts requests: they need no key and no permit.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.options.exempt = Some(Box::new(exempt));
        self
    }

    /// Answers a request without a permit with 503 instead of 429, and with the problem type
    /// `temporary-reduced-capacity`.
    ///
    /// Use it for a limit that all clients share, such as one by [`Global`](crate::key::Global): the client has done
    /// nothing wrong.
    pub fn service_unavailable(mut self) -> Self {
        self.options.is_unavailable = true;
        self
    }

    /// Sets whether responses carry the headers `RateLimit-Policy` and `RateLimit`. The default is `true`.
    ///
    /// The headers have the syntax of [`HeaderFormat::Ietf08`](crate::HeaderFormat::Ietf08), with the unit
    /// `concurrent-requests`. Turn them off around a layer whose header format is another one of the IETF.
    pub fn headers(mut self, has_headers: bool) -> Self {
        self.options.has_headers = has_headers;
        self
    }

    /// Adds a random time of up to `max` to the wait of each rejection, so that clients do not come back together. The
    /// default is 0.
    pub fn retry_jitter(mut self, max: Duration) -> Self {
        self.options.retry_jitter = max;
        self
    }

    /// Sets the metric labels, from a fixed list. The metric `tollgate_rejections_total` carries them.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.options.labels = labels;
        self
    }

    /// Sets the [responder](crate::Respond) that builds rejections. The default is [`Problem`].
    pub fn respond_with<R2>(self, responder: R2) -> ConcurrencyBuilder<K, R2> {
        ConcurrencyBuilder { limiter: self.limiter, key: self.key, options: self.options, responder }
    }
}

impl<K, R> fmt::Debug for ConcurrencyBuilder<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyBuilder").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
