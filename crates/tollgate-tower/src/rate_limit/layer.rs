//! The layer: what it answers the skeleton for a request, and what is left to do for an admitted one.

use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tollgate::{
    Cost, Costs, Key, Limiter,
    limiter::LimiterFuture,
    reservation::Reservation,
    store::{CheckFuture, StoreFuture},
};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    charge::{Charge, Outcome},
    decisions::Decisions,
    gate::{self, Gate, Gated, take_ready},
    headers::HeaderUpdate,
    key::{BoxedKey, KeyExtractor},
    metrics::LabelIndex,
    rate_limit::{
        builder::RateLimitBuilder,
        handler::{HandlerLimiter, Judge},
        joint::JointFuture,
        limiters::LimiterSource,
        reservation::MeteredReservation,
        shared::{LimitRef, Shared},
    },
    rejection::{Problem, Respond},
};

/// Limits the requests of a service.
///
/// Each request spends one unit of every policy of the [`Limiter`](tollgate::Limiter). A request that does not fit is
/// [rejected](crate::rejection), and the service is not called. The response to each request that was checked carries
/// the headers `RateLimit-Policy` and `RateLimit`, in the syntax of draft-ietf-httpapi-ratelimit-headers, revisions 08
/// to 11.
///
/// To limit something that is not an HTTP request, use the [`Limiter`](tollgate::Limiter) itself.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, key::Header};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("daily", Quota::per_day(1)));
/// let service = RateLimitLayer::new(limiter, Header::new("x-api-key"))
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::from("hello"))) }));
///
/// let request = || Request::builder().header("x-api-key", "acme").body(()).unwrap();
/// let response = service.clone().oneshot(request()).await.unwrap();
/// assert_eq!(response.headers()["ratelimit-policy"], r#""daily";q=1;w=86400"#);
///
/// let response = service.oneshot(request()).await.unwrap();
/// assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert!(response.headers().contains_key("retry-after"));
/// # }
/// ```
///
/// [`builder`](Self::builder) offers the options:
///
/// ```
/// # use http::{Request, Response};
/// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tollgate_tower::{RateLimitLayer, key::Header, rejection::Empty};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
/// # let service = service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::from("hello"))) });
/// let layer: RateLimitLayer<Header, Empty> =
///     RateLimitLayer::builder(limiter, Header::new("x-api-key")).respond_with(Empty).build();
///
/// let response = layer.layer(service).oneshot(Request::new(())).await.unwrap();
/// assert_eq!(response.status(), 400);
/// assert_eq!(response.into_body(), "");
/// # }
/// ```
///
/// # The body of a rejected request
///
/// The response to a rejected request does not wait for the body of the request. The layer reads the rest of a body of
/// axum or tonic in the background. So a client that is still sending receives the response, and the server can keep
/// the connection. The layer drops a body of another type, such as hyper's `Incoming`: put a
/// [`DrainLayer`](crate::drain::DrainLayer) around it. The module [`drain`](crate::drain) has the bounds.
pub struct RateLimitLayer<K = BoxedKey, R = Problem> {
    pub(super) shared: Arc<Shared<K, R>>,
}

impl<K: KeyExtractor> RateLimitLayer<K> {
    /// Creates a layer with the default options.
    ///
    /// `limiters` is one [`Limiter`](tollgate::Limiter), or any other [`LimiterSource`]: tiers, limits that change while
    /// the service runs, or the limits of tenants. `key` finds the key of a request.
    #[must_use]
    pub fn new(limiters: impl Into<LimiterSource>, key: K) -> Self {
        Self::builder(limiters, key).build()
    }

    /// Creates a builder, which offers the options.
    pub fn builder(limiters: impl Into<LimiterSource>, key: K) -> RateLimitBuilder<K> {
        RateLimitBuilder::new(limiters.into(), key)
    }
}

impl<K: KeyExtractor, R> RateLimitLayer<K, R> {
    /// Returns a [`HandlerLimiter`] that checks `limiter` inside a handler, with the options of this layer.
    ///
    /// The limiters of the layer are not checked. `B` is the body type of the handler's responses.
    #[must_use]
    pub fn handler_limiter<B>(&self, limiter: Limiter) -> HandlerLimiter<B>
    where
        R: Respond<B>,
    {
        HandlerLimiter::new(Arc::clone(&self.shared) as Arc<dyn Judge<B>>, limiter)
    }
}

impl<K, R> RateLimitBuilder<K, R> {
    /// Builds the layer.
    #[must_use]
    pub fn build(self) -> RateLimitLayer<K, R> {
        RateLimitLayer { shared: Arc::new(self.into_shared()) }
    }
}

impl<S, K, R> Layer<S> for RateLimitLayer<K, R> {
    type Service = RateLimit<S, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        Gated::new(inner, self.clone())
    }
}

impl<K, R> Clone for RateLimitLayer<K, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K, R> fmt::Debug for RateLimitLayer<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("limits", &self.shared.limits()).finish_non_exhaustive()
    }
}

/// Limits the requests of an inner service. [`RateLimitLayer`] creates it.
///
/// Its response and error types are those of the inner service.
pub type RateLimit<S, K = BoxedKey, R = Problem> = Gated<S, RateLimitLayer<K, R>>;

impl<S, K, R, ReqBody, ResBody> Gate<S, ReqBody> for RateLimitLayer<K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
{
    type Pass = Admission;
    type Wait = Step;
    type Response = S::Response;

    // Inlined by force: the verdict is built where the service reads it, instead of being copied there.
    #[inline(always)]
    fn admit(&self, parts: &mut Parts) -> Verdict<ResBody> {
        self.shared.check_request(parts)
    }

    fn poll_wait(&self, step: &mut Step, parts: &mut Parts, cx: &mut Context<'_>) -> Poll<Verdict<ResBody>> {
        self.shared.poll_step(step, parts, cx)
    }

    fn hold(service: &mut S, _: &Step) -> S {
        take_ready(service)
    }

    #[inline]
    fn set_running(admission: &mut Admission, is_running: bool) {
        admission.set_running(is_running);
    }

    #[inline]
    fn complete(admission: Option<&mut Admission>, mut response: S::Response) -> S::Response {
        if let Some(admission) = admission {
            admission.complete(&mut response);
        }
        response
    }

    fn fail(admission: &mut Admission) {
        admission.fail();
    }
}

/// Says what happens to a request next.
pub(crate) type Verdict<B> = gate::Verdict<Admission, Step, Response<B>>;

/// Says what a request waits for.
#[allow(missing_debug_implementations, reason = "only the skeleton of the layers sees it")]
pub enum Step {
    /// Its limiter is looked up.
    LookUp(LimiterFuture),
    /// The store has not answered yet.
    Check(CheckFuture, RequestContext),
    /// The store has not answered to a reservation yet. Boxed, because few layers reserve.
    Reserve(Box<(StoreFuture<Reservation>, RequestContext)>),
    /// A decider has not answered yet.
    Decide(JointFuture),
}

/// Stores what is known of a request until the store answers.
#[allow(missing_debug_implementations, reason = "only the skeleton of the layers sees it")]
pub struct RequestContext {
    /// The limiter that is checked.
    pub(crate) limit: LimitRef,
    /// The key of the request, where it is needed after the check.
    pub(crate) key: Option<Box<Key>>,
    pub(crate) cost: Cost,
    /// The cost for each policy, where it is needed after the check.
    pub(crate) costs: Option<Box<Costs>>,
    pub(crate) asked: Asked,
    /// The request is only counted. It stays so when the share that is enforced changes meanwhile.
    pub(crate) is_shadow: bool,
    pub(crate) labels: LabelIndex,
}

/// Says what the store was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// One cost for all policies.
    One,
    /// A cost for each policy. Costs that do not fit the policies are a wrong set-up.
    Each,
    /// A reservation, which charges the request, so that no final cost does. A store may hold none.
    Estimate,
}

/// Stores what is left to do for an admitted request when the service has answered.
#[allow(missing_debug_implementations, reason = "only the skeleton of the layers sees it")]
pub struct Admission {
    headers: HeaderUpdate,
    /// Boxed, because few layers use it, and the response future that carries it is moved several times.
    extras: Option<Box<Extras>>,
}

/// Stores what only layers with some options do.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) charge: Option<Charge>,
    pub(crate) decisions: Option<Decisions>,
    /// The headers of a request that several limits decided.
    pub(crate) headers: Vec<HeaderUpdate>,
    /// Settled when it is dropped.
    pub(crate) reservation: Option<MeteredReservation>,
}

impl Admission {
    /// Admits a request without a decision.
    pub(crate) const EXEMPT: Self = Self { headers: HeaderUpdate::EMPTY, extras: None };

    #[inline(always)]
    pub(crate) fn new(headers: HeaderUpdate, extras: Option<Box<Extras>>) -> Self {
        Self { headers, extras }
    }

    /// Admits a request that several limits decided.
    pub(crate) fn with_extras(extras: Box<Extras>) -> Self {
        Self { headers: HeaderUpdate::EMPTY, extras: Some(extras) }
    }

    /// Notes for the charge whether the service runs.
    #[inline]
    pub(crate) fn set_running(&mut self, is_running: bool) {
        if let Some(charge) = self.charge() {
            charge.is_running = is_running;
        }
    }

    #[inline]
    fn charge(&mut self) -> Option<&mut Charge> {
        self.extras.as_mut()?.charge.as_mut()
    }

    /// Holds a reservation until the response body does, or until the request ends without one.
    pub(crate) fn hold(&mut self, reservation: MeteredReservation) {
        self.extras.get_or_insert_default().reservation = Some(reservation);
    }

    /// Takes the reservation, for the response body.
    pub(crate) fn take_reservation(&mut self) -> Option<MeteredReservation> {
        self.extras.as_mut()?.reservation.take()
    }

    /// Settles the charge or the reservation of a request whose service returned an error.
    pub(crate) fn fail(&mut self) {
        drop(self.take_reservation());
        if let Some(charge) = self.charge() {
            charge.settle(Outcome::Failed);
        }
    }

    /// Completes the response of the service.
    // Inlined by force: the headers move once, from the future into the response.
    #[inline(always)]
    pub(crate) fn complete<B>(&mut self, response: &mut Response<B>) {
        if let Some(extras) = self.extras.take()
            && extras.complete(response)
        {
            self.headers.forget_wait();
        }
        self.headers.add_to(response.headers_mut());
    }
}

impl Extras {
    /// Completes the response of the service. Returns whether units of the request are given back.
    fn complete<B>(mut self: Box<Self>, response: &mut Response<B>) -> bool {
        let mut is_refunded = false;
        if let Some(mut charge) = self.charge.take() {
            // The closure of the user reads a head without a body. It is lent to the closure and put back.
            let (mut head, ()) = Response::new(()).into_parts();
            (head.status, head.version) = (response.status(), response.version());
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
            is_refunded = charge.settle(Outcome::Response(&head));
            mem::swap(&mut head.headers, response.headers_mut());
            mem::swap(&mut head.extensions, response.extensions_mut());
        }
        if let Some(decisions) = self.decisions.take() {
            decisions.insert_into(response.extensions_mut());
        }
        for update in &mut self.headers {
            if is_refunded {
                update.forget_wait();
            }
            update.add_to(response.headers_mut());
        }
        is_refunded
    }
}
