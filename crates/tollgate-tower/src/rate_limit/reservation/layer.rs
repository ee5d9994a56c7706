use std::{
    borrow::Cow,
    fmt,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use tollgate::{Enforcement, KeySecret};
use tower_layer::Layer;
use tower_service::Service;

use super::{metered::MeteredReservation, options::ReservationBuilder};
use crate::{
    RateLimitLayer,
    body::{GuardedBody, guard_response},
    gate::{Gate, Gated, take_ready},
    headers::{HeaderFormat, QuotaUnit},
    key::{BoxedKey, KeyExtractor},
    labels::MetricLabels,
    rate_limit::{
        builder::RateLimitBuilder,
        layer::{Admission, Step, Verdict},
    },
    rejection::{Problem, Respond},
};

/// Limits the requests of a service by a cost that is known when the response body ends.
///
/// It is a [`RateLimitLayer`] that charges an estimate before it calls the service. The service counts the real cost
/// with the [`Meter`](crate::Meter) in the extensions of the request. When the body of the response ends, fails or is
/// dropped, the layer settles the difference. The [module](crate::rate_limit::reservation) lists what each end costs.
/// The body of the response is a [`GuardedBody`](crate::body::GuardedBody) around the body of the service: frames and
/// trailers pass unchanged.
///
/// The rate limit headers show the state after the reservation. They do not include the difference to the final cost.
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

impl<K, R> ReservationBuilder<K, R> {
    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> ReservationLayer<K, R> {
        let Self { builder, estimate, options } = self;
        ReservationLayer { layer: builder.reserving(estimate, options).build() }
    }
}

impl<S, K, R> Layer<S> for ReservationLayer<K, R> {
    type Service = Reserve<S, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, self.clone())
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

impl<K, R> ReservationBuilder<K, R> {
    /// Exempts requests from the limit: see [`RateLimitBuilder::exempt`].
    pub fn exempt(self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|builder| builder.exempt(exempt))
    }

    /// Inserts the [`Decisions`](crate::Decisions) into the extensions: see [`RateLimitBuilder::expose_decisions`].
    pub fn expose_decisions(self, expose: bool) -> Self {
        self.with(|builder| builder.expose_decisions(expose))
    }

    /// Turns shadow mode on or off: see [`RateLimitBuilder::shadow`].
    pub fn shadow(self, is_shadow: bool) -> Self {
        self.with(|builder| builder.shadow(is_shadow))
    }

    /// Enforces the limit for a share of the keys: see [`RateLimitBuilder::enforcement`].
    pub fn enforcement(self, enforcement: Enforcement) -> Self {
        self.with(|builder| builder.enforcement(enforcement))
    }

    /// Sets the metric labels: see [`RateLimitBuilder::metric_labels`].
    pub fn metric_labels(self, labels: MetricLabels) -> Self {
        self.with(|builder| builder.metric_labels(labels))
    }

    /// Finds the service and the method of a call, for the log: see [`RateLimitBuilder::rpc_name`].
    pub fn rpc_name(
        self,
        name: impl for<'a> Fn(&'a Parts) -> Option<(&'a str, &'a str)> + Send + Sync + 'static,
    ) -> Self {
        self.with(|builder| builder.rpc_name(name))
    }

    /// Sets the responder that builds rejections: see [`RateLimitBuilder::respond_with`].
    pub fn respond_with<R2>(self, responder: R2) -> ReservationBuilder<K, R2> {
        self.with(|builder| builder.respond_with(responder))
    }

    /// Selects the rate limit header format: see [`RateLimitBuilder::header_format`].
    pub fn header_format(self, format: HeaderFormat) -> Self {
        self.with(|builder| builder.header_format(format))
    }

    /// Selects several rate limit header formats: see [`RateLimitBuilder::header_formats`].
    ///
    /// # Panics
    ///
    /// Panics if two formats have a rate limit header in common, such as `Ietf08` and `Ietf07`.
    pub fn header_formats(self, formats: impl IntoIterator<Item = HeaderFormat>) -> Self {
        self.with(|builder| builder.header_formats(formats))
    }

    /// Allows scripts in browsers to read the rate limit headers: see [`RateLimitBuilder::expose_headers`].
    pub fn expose_headers(self, expose: bool) -> Self {
        self.with(|builder| builder.expose_headers(expose))
    }

    /// Names the unit that the policies count: see [`RateLimitBuilder::quota_unit`].
    pub fn quota_unit(self, unit: QuotaUnit) -> Self {
        self.with(|builder| builder.quota_unit(unit))
    }

    /// Names the units of some policies: see [`RateLimitBuilder::quota_units`].
    pub fn quota_units<N>(self, units: impl IntoIterator<Item = (N, QuotaUnit)>) -> Self
    where
        N: Into<Cow<'static, str>>,
    {
        self.with(|builder| builder.quota_units(units))
    }

    /// Adds a digest of the key to the rate limit headers: see [`RateLimitBuilder::partition_key`].
    pub fn partition_key(self, secret: KeySecret) -> Self {
        self.with(|builder| builder.partition_key(secret))
    }

    /// Adds a random time to the reported wait: see [`RateLimitBuilder::retry_jitter`].
    pub fn retry_jitter(self, max: Duration) -> Self {
        self.with(|builder| builder.retry_jitter(max))
    }

    /// Marks responses that were decided without the store: see [`RateLimitBuilder::mark_degraded`].
    pub fn mark_degraded(self, mark: bool) -> Self {
        self.with(|builder| builder.mark_degraded(mark))
    }

    /// Changes the options of the layer.
    fn with<R2>(
        self,
        change: impl FnOnce(RateLimitBuilder<K, R>) -> RateLimitBuilder<K, R2>,
    ) -> ReservationBuilder<K, R2> {
        ReservationBuilder { builder: change(self.builder), estimate: self.estimate, options: self.options }
    }
}

/// Limits the requests of an inner service, and settles their cost when their response bodies end. [`ReservationLayer`]
/// creates it.
pub type Reserve<S, K = BoxedKey, R = Problem> = Gated<S, ReservationLayer<K, R>>;

impl<S, K, R, ReqBody, ResBody> Gate<S, ReqBody> for ReservationLayer<K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ResBody: Body,
{
    type Pass = Admission;
    type Wait = Step;
    type Response = Response<GuardedBody<ResBody, MeteredReservation>>;

    fn admit(&self, parts: &mut Parts) -> Verdict<ResBody> {
        self.layer.shared.check_request(parts)
    }

    fn poll_wait(&self, step: &mut Step, parts: &mut Parts, cx: &mut Context<'_>) -> Poll<Verdict<ResBody>> {
        self.layer.shared.poll_step(step, parts, cx)
    }

    fn hold(service: &mut S, _: &Step) -> S {
        take_ready(service)
    }

    fn complete(admission: Option<&mut Admission>, mut response: S::Response) -> Self::Response {
        let reservation = admission.and_then(|admission| {
            let reservation = admission.take_reservation();
            admission.complete(&mut response);
            reservation
        });
        match reservation {
            Some(reservation) => guard_response(response, reservation),
            None => response.map(GuardedBody::unguarded),
        }
    }

    fn fail(admission: &mut Admission) {
        admission.fail();
    }
}
