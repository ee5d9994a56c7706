//! The layer and its builder: which step of `Gate` has which part in a request's life.
//! What happens in each step is in `shared.rs`.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use tollgate_core::permits::ConcurrencyLimiter;
use tower_service::Service;

use super::{
    held::PermitBody,
    shared::{AcquireFuture, InFlight, Shared},
};
use crate::{
    gate::{Gate, GateOptions, Gated, Verdict, take_ready},
    headers::PermitHeaders,
    key::{BoxedKey, KeyExtractor},
    labels::MetricLabels,
    rejection::{Problem, Respond},
};

/// Limits how many requests of each key a service works on at the same time.
///
/// Each request takes a permit of a [`ConcurrencyLimiter`]. It waits for a permit for up to the
/// [longest wait](tollgate_core::permits::Concurrency::wait) of the limit, which is 0 by default. The
/// number of waiting requests is [bounded](tollgate_core::permits::Concurrency::max_waiting). A request
/// that is dropped leaves the queue. The body of the response is a
/// [`PermitBody`](super::PermitBody) around the body of the service. The
/// [module](crate::concurrency) has an example.
///
/// The layer reads the body of a rejected request [as a `RateLimitLayer`
/// does](crate::RateLimitLayer#the-body-of-a-rejected-request).
///
/// [`builder`](Self::builder) offers the options:
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{MemoryStore, permits::{Concurrency, ConcurrencyLimiter}};
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
#[doc(alias = "in flight")]
#[doc(alias = "semaphore")]
pub struct ConcurrencyLayer<K = BoxedKey, R = Problem> {
    pub(super) shared: Arc<Shared<K, R>>,
}

impl<K: KeyExtractor> ConcurrencyLayer<K> {
    /// Creates a layer with the default options. `key` finds the key of a request.
    #[must_use]
    pub fn new(limiter: ConcurrencyLimiter, key: K) -> Self {
        Self::builder(limiter, key).build()
    }

    /// Creates a builder, which offers the options.
    pub fn builder(limiter: ConcurrencyLimiter, key: K) -> ConcurrencyBuilder<K> {
        let shared = Shared {
            headers: Some(PermitHeaders::new(limiter.policy().name(), limiter.limit())),
            limiter,
            key,
            gate: GateOptions::new(),
            is_unavailable: false,
        };
        ConcurrencyBuilder { shared }
    }
}

crate::gate::is_no_layer!(ConcurrencyBuilder<K, R>);

impl<K, R> ConcurrencyBuilder<K, R> {
    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> ConcurrencyLayer<K, R> {
        ConcurrencyLayer {
            shared: Arc::new(self.shared),
        }
    }
}

crate::gate::is_layer!(ConcurrencyLayer<K, R>, shared);

tollgate_core::debug_fields! { ConcurrencyLayer<K, R>: limiter = .shared.limiter, .. }

/// Limits how many requests of an inner service are in flight. [`ConcurrencyLayer`] creates it.
pub type ConcurrencyLimit<S, K = BoxedKey, R = Problem> = Gated<S, ConcurrencyLayer<K, R>>;

impl<S, K, R, ReqBody, ResBody> Gate<S, ReqBody> for ConcurrencyLayer<K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ResBody: Body,
{
    type Pass = InFlight<K, R>;
    type Wait = AcquireFuture;
    type Response = Response<PermitBody<ResBody>>;

    fn admit(&self, parts: &mut Parts) -> Verdict<InFlight<K, R>, AcquireFuture, S::Response> {
        match self.shared.key(parts) {
            Ok(None) => Verdict::Admit(InFlight::EXEMPT),
            Ok(Some(key)) => Verdict::Wait(self.shared.acquire(key)),
            Err(error) => Verdict::Reject(self.shared.reject_without_key(&error, parts)),
        }
    }

    fn poll_wait(
        &self,
        acquire: &mut AcquireFuture,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Verdict<InFlight<K, R>, AcquireFuture, S::Response>> {
        let outcome = ready!(acquire.as_mut().poll(cx));
        Poll::Ready(match self.shared.judge(outcome, parts) {
            Ok(in_flight) => Verdict::Admit(in_flight),
            Err(response) => Verdict::Reject(response),
        })
    }

    fn hold(service: &mut S, _: &AcquireFuture) -> S {
        take_ready(service)
    }

    fn poll_revoked(in_flight: &mut InFlight<K, R>, cx: &mut Context<'_>) -> Poll<S::Response> {
        in_flight.poll_lost(cx)
    }

    fn complete(in_flight: Option<&mut InFlight<K, R>>, response: S::Response) -> Self::Response {
        match in_flight {
            Some(in_flight) => in_flight.complete(response),
            None => response.map(PermitBody::unguarded),
        }
    }

    fn fail(in_flight: &mut InFlight<K, R>) {
        in_flight.fail();
    }
}

/// Builds a [`ConcurrencyLayer`](crate::concurrency::ConcurrencyLayer) with options.
///
/// [`ConcurrencyLayer::builder`](crate::concurrency::ConcurrencyLayer::builder) creates it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct ConcurrencyBuilder<K, R = Problem> {
    shared: Shared<K, R>,
}

impl<K, R> ConcurrencyBuilder<K, R> {
    /// Exempts requests: an exempt request needs no key and no permit.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.shared.gate = self.shared.gate.exempt(exempt);
        self
    }

    /// Limits only the requests that this function selects. All others are
    /// [exempt](Self::exempt), and so is a selected one that `exempt` exempts.
    pub fn only(mut self, only: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.shared.gate = self.shared.gate.only(only);
        self
    }

    /// Responds to a request that gets no permit with 503 instead of 429, and with the problem type
    /// `temporary-reduced-capacity`.
    ///
    /// Use it for a limit that all clients share, such as one by [`Global`](crate::key::Global):
    /// the client has done nothing wrong.
    pub fn service_unavailable(mut self) -> Self {
        self.shared.is_unavailable = true;
        self
    }

    /// Sets whether responses carry the headers `RateLimit-Policy` and `RateLimit`. The default is
    /// `true`.
    ///
    /// The headers have the syntax of [`HeaderFormat::Ietf08`](crate::HeaderFormat::Ietf08), with
    /// the unit `concurrent-requests`. Turn them off around a layer with the format `Ietf07` or
    /// `Ietf06`, because a client cannot parse a mixture.
    pub fn headers(mut self, has_headers: bool) -> Self {
        let limiter = &self.shared.limiter;
        self.shared.headers =
            has_headers.then(|| PermitHeaders::new(limiter.policy().name(), limiter.limit()));
        self
    }

    /// Adds a random time of up to `max` to the wait of each rejection, so that clients do not come
    /// back together. The default is 0.
    pub fn retry_jitter(mut self, max: Duration) -> Self {
        self.shared.gate = self.shared.gate.retry_jitter(max);
        self
    }

    /// Sets the metric labels, from a fixed list. The metric `tollgate_rejections_total` carries
    /// them.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.shared.gate = self.shared.gate.metric_labels(labels);
        self
    }

    /// Sets the [responder](crate::Respond) that builds rejections. The default is [`Problem`].
    pub fn respond_with<R2>(self, responder: R2) -> ConcurrencyBuilder<K, R2> {
        let Shared {
            limiter,
            key,
            gate,
            is_unavailable,
            headers,
        } = self.shared;
        let shared = Shared {
            limiter,
            key,
            gate: gate.respond_with(responder),
            is_unavailable,
            headers,
        };
        ConcurrencyBuilder { shared }
    }
}

tollgate_core::debug_fields! { ConcurrencyBuilder<K, R>: limiter = .shared.limiter, .. }
