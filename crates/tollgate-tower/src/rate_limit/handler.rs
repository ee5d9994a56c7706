//! Limits requests inside a handler, with the answers of a layer.

use std::{
    fmt,
    future::poll_fn,
    sync::{Arc, LazyLock},
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode, request::Parts};
use tollgate::{
    Cost, Costs, Decision, Error, Key, Limiter, MemoryStore, Policy, PolicySet, Priority, Quota, Store,
    store::{Check, CheckFuture},
};

use crate::{
    key::Global,
    labels::MetricLabels,
    metrics::LabelIndex,
    rate_limit::{
        RateLimitLayer,
        layer::{Admission, Step, Verdict},
        reservation::{MeteredReservation, ReserveOptions},
        shared::LimitRef,
    },
    rpc::RpcName,
};

/// A request that a [`HandlerLimiter`](HandlerLimiter) has admitted. [`complete`](Self::complete) finishes its
/// response.
///
/// If it is dropped instead, the request counts as [cancelled](crate::Outcome::Cancelled). This matters with the
/// options [`final_cost`](crate::RateLimitBuilder::final_cost), [`charge_on`](crate::RateLimitBuilder::charge_on) and
/// [`charge_after`](crate::RateLimitBuilder::charge_after).
#[must_use = "the response carries the rate limit headers only after `complete`"]
pub struct Admitted(Admission);

impl Admitted {
    /// Completes the response of the handler.
    ///
    /// Adds the rate limit headers, and settles the final cost where the layer has one. If the response already has
    /// headers of the same format, both are combined, as in [stacked layers](crate::guide::layers#headers).
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

/// Asks the limiters of a layer outside of it. The state of a layer implements it, so that its limiters in a handler
/// do not carry the type parameters of the layer.
pub(crate) trait Charger: Send + Sync {
    fn limiter<'a>(&'a self, limit: &'a LimitRef) -> &'a Limiter;

    /// Returns a limiter with what the layer keeps for its policies.
    fn limit(&self, limiter: Limiter) -> LimitRef;

    /// Charges costs. Waits for up to `wait`, or as the layer does.
    fn charge(&self, limit: &LimitRef, key: &Key, costs: Costs, wait: Option<Duration>) -> CheckFuture;

    /// Logs and counts the result of a check. Returns whether the request may go on.
    fn record(
        &self,
        limit: &LimitRef,
        key: &Key,
        result: &Result<Decision, Error>,
        labels: LabelIndex,
        rpc: &RpcName<&str>,
    ) -> bool;
}

/// Takes requests on the way of the layer, from the check to the answer.
///
/// The trait hides the type parameters of the layer. The alternative was a marker in the extensions of the response, which the layer
/// around the handler replaces by its rejection. It would cost each response a look-up, and lose the headers of the layers between.
pub(crate) trait Judge<B>: Charger {
    /// Returns the costs of a request.
    fn costs(&self, request: &Parts) -> Costs;

    /// Gives costs of a handler the priority of the request, unless the handler has lowered theirs.
    fn ranked(&self, costs: Costs, request: &Parts) -> Costs;

    fn check(self: Arc<Self>, limit: LimitRef, key: &Key, costs: Costs, request: &mut Parts) -> Verdict<B>;

    fn reserve(
        self: Arc<Self>,
        limit: LimitRef,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
        request: &mut Parts,
    ) -> Verdict<B>;

    fn poll(self: Arc<Self>, step: &mut Step, request: &mut Parts, cx: &mut Context<'_>) -> Poll<Verdict<B>>;

    /// Turns the result of a check into a verdict.
    fn judge(
        self: Arc<Self>,
        result: &Result<Decision, Error>,
        limit: LimitRef,
        key: Key,
        request: &mut Parts,
    ) -> Verdict<B>;
}

/// Limits requests inside a handler, with the answers of a layer.
///
/// A layer sees only the head of a request. When the key is in the body, such as a user name in JSON, only the handler
/// knows it. [`RateLimitLayer::handler_limiter`](crate::RateLimitLayer::handler_limiter) creates a handler limiter from
/// a limiter and the options of a layer. A request that it rejects receives the same response as from the layer:
/// status, problem document, `Retry-After`, rate limit headers and exposed names. Denials are logged and counted in the
/// same way.
///
/// The options apply as in the layer, with these exceptions. The key comes from the handler.
/// [`exempt`](crate::RateLimitBuilder::exempt) and [`networks`](crate::RateLimitBuilder::networks) do not apply. A
/// handler that panics counts as [cancelled](crate::Outcome::Cancelled). `B` is the body type of the handler's
/// responses.
///
/// Use a layer to limit requests by their head. When a layer is around the handler too, give the policies of both
/// different names: see [stacked layers](crate::guide::layers#headers). A handler that checks before it has read the
/// body needs a [`DrainLayer`](crate::drain::DrainLayer) around it, so that a client that is still sending receives the
/// rejection.
///
/// ```
/// use axum::{
///     Router,
///     body::{Body, to_bytes},
///     extract::State,
///     response::{IntoResponse, Response},
///     routing::post,
/// };
/// use http::{Request, request::Parts};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{HandlerLimiter, RateLimitLayer, Rejected, key::Header};
/// use tower::ServiceExt;
///
/// async fn mail(
///     State(mails): State<HandlerLimiter<Body>>,
///     mut request: Parts,
///     recipient: String,
/// ) -> Result<Response, Rejected<Body>> {
///     let admitted = mails.check(&mut request, recipient).await?;
///     Ok(admitted.complete("sent".into_response()))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let store = MemoryStore::new();
/// let clients = Limiter::new(store.clone(), Policy::window_from_first_hit("client", Quota::per_day(100)));
/// let recipients = Limiter::new(store, Policy::window_from_first_hit("recipient", Quota::per_hour(1)));
/// let layer = RateLimitLayer::new(clients, Header::new("x-api-key"));
/// let mails: HandlerLimiter<Body> = layer.handler_limiter(recipients);
/// let router = Router::new().route("/", post(mail).layer(layer)).with_state(mails);
///
/// let request = |to: &str| Request::post("/").header("x-api-key", "acme").body(Body::from(to.to_owned())).unwrap();
/// let sent = router.clone().oneshot(request("ann@example.com")).await.unwrap();
/// assert_eq!(sent.headers()["ratelimit"], r#""recipient";r=0;t=3600, "client";r=99;t=86400"#);
/// let denied = router.clone().oneshot(request("ann@example.com")).await.unwrap();
/// assert_eq!(denied.status(), 429);
/// assert_eq!(denied.headers()["retry-after"], "3600");
/// let document = to_bytes(denied.into_body(), 1000).await.unwrap();
/// assert!(document.ends_with(br#""violated-policies":["recipient"]}"#));
/// assert_eq!(router.oneshot(request("bob@example.com")).await.unwrap().status(), 200);
/// # }
/// ```
pub struct HandlerLimiter<B> {
    judge: Arc<dyn Judge<B>>,
    limit: LimitRef,
}

impl<B> HandlerLimiter<B> {
    pub(crate) fn new(judge: Arc<dyn Judge<B>>, limiter: Limiter) -> Self {
        Self { limit: judge.limit(limiter), judge }
    }

    /// Returns a handler limiter with the same options and another limiter, such as the one of a tenant.
    #[must_use]
    pub fn with_limiter(&self, limiter: Limiter) -> Self {
        Self::new(Arc::clone(&self.judge), limiter)
    }

    /// Returns the limiter that is checked.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        self.limit.get(&[]).limiter
    }

    /// Checks the limiter. The request costs as much as the [layer](crate::RateLimitBuilder::cost) charges for it.
    ///
    /// `request` is the head of the request. As in a layer, options such as
    /// [`expose_decisions`](crate::RateLimitBuilder::expose_decisions) insert into its extensions.
    ///
    /// # Errors
    ///
    /// Returns the response to a rejected request: 429 when it is denied, 413 when its cost never fits, 503 when the
    /// store did not decide and the limiter is [closed](tollgate::Outage::Closed), and 500 when the key has too few
    /// levels for a policy.
    pub fn check(
        &self,
        request: &mut Parts,
        key: impl Into<Key>,
    ) -> impl Future<Output = Result<Admitted, Rejected<B>>> + Send {
        let costs = self.judge.costs(request);
        self.check_ranked(request, key.into(), costs)
    }

    /// Checks the limiter at the given cost: one [`Cost`] for all policies, or [`Costs`] for each.
    ///
    /// The check has the [`priority`](crate::RateLimitBuilder::priority) of the request, or that of the costs where it is
    /// below critical.
    ///
    /// # Errors
    ///
    /// The same as [`check`](Self::check). The status is also 500 when the costs do not name each policy.
    pub fn check_costs(
        &self,
        request: &mut Parts,
        key: impl Into<Key>,
        costs: impl Into<Costs>,
    ) -> impl Future<Output = Result<Admitted, Rejected<B>>> + Send {
        let costs = self.judge.ranked(costs.into(), request);
        self.check_ranked(request, key.into(), costs)
    }

    async fn check_ranked(&self, request: &mut Parts, key: Key, costs: Costs) -> Result<Admitted, Rejected<B>> {
        self.ask(request, |judge, limit, request| judge.check(limit, &key, costs, request)).await.map(Admitted)
    }

    /// Turns the result of a check into an admission or a rejection, for a handler that checks the
    /// [`limiter`](Self::limiter) itself.
    ///
    /// ```
    /// # use http::Request;
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{HandlerLimiter, RateLimitLayer, key::Global};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let requests = Limiter::new(MemoryStore::new(), Policy::fixed_window("all", Quota::per_day(1000)));
    /// let policies = [Policy::fixed_window("files", Quota::per_day(10)), Policy::fixed_window("rows", Quota::per_day(100))];
    /// let exports = Limiter::new(MemoryStore::new(), policies);
    /// let exports: HandlerLimiter<String> = RateLimitLayer::new(requests, Global).handler_limiter(exports);
    ///
    /// # let (mut request, ()) = Request::new(()).into_parts();
    /// let result = exports.limiter().check("acme").cost([("files", 1), ("rows", 101)]).await;
    /// let rejected = exports.answer(&mut request, "acme", &result).unwrap_err();
    /// assert_eq!(rejected.status(), 413);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`check`](Self::check).
    pub fn answer(
        &self,
        request: &mut Parts,
        key: impl Into<Key>,
        result: &Result<Decision, Error>,
    ) -> Result<Admitted, Rejected<B>> {
        match Arc::clone(&self.judge).judge(result, self.limit.clone(), key.into(), request) {
            Verdict::Admit(admission) => Ok(Admitted(admission)),
            Verdict::Reject(response) => Err(Rejected::new(response)),
            Verdict::Wait(_) => unreachable!("a result is never waited for"),
        }
    }

    /// Reserves, with the options of a builder.
    pub(crate) async fn reserve_with(
        &self,
        request: &mut Parts,
        key: Key,
        estimate: Costs,
        options: ReserveOptions,
    ) -> Result<(Admitted, MeteredReservation), Rejected<B>> {
        let start = |judge: Arc<dyn Judge<B>>, limit, request: &mut Parts| {
            let estimate = judge.ranked(estimate, request);
            judge.reserve(limit, &key, estimate, options, request)
        };
        let mut admission = self.ask(request, start).await?;
        let reservation = admission.take_reservation();
        let reservation = reservation.unwrap_or_else(|| MeteredReservation::new(self.limiter(), None));
        Ok((Admitted(admission), reservation))
    }

    /// Takes a request on the way of the layer, to its end.
    async fn ask(
        &self,
        request: &mut Parts,
        start: impl FnOnce(Arc<dyn Judge<B>>, LimitRef, &mut Parts) -> Verdict<B>,
    ) -> Result<Admission, Rejected<B>> {
        let mut step = match start(Arc::clone(&self.judge), self.limit.clone(), request) {
            Verdict::Admit(admission) => return Ok(admission),
            Verdict::Reject(response) => return Err(Rejected::new(response)),
            Verdict::Wait(step) => step,
        };
        loop {
            match poll_fn(|cx| Arc::clone(&self.judge).poll(&mut step, request, cx)).await {
                Verdict::Admit(admission) => return Ok(admission),
                Verdict::Reject(response) => return Err(Rejected::new(response)),
                Verdict::Wait(next) => step = next,
            }
        }
    }
}

impl<B> Clone for HandlerLimiter<B> {
    fn clone(&self) -> Self {
        Self { judge: Arc::clone(&self.judge), limit: self.limit.clone() }
    }
}

impl<B> fmt::Debug for HandlerLimiter<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerLimiter").field("limiter", self.limiter()).finish_non_exhaustive()
    }
}

/// The response to a request that a [`HandlerLimiter`](HandlerLimiter) has rejected.
///
/// With the feature `axum`, it implements `IntoResponse`: a handler returns it with `?`.
#[must_use = "the client must receive the response"]
pub struct Rejected<B> {
    // Boxed, so that the result of a check stays small.
    response: Box<Response<B>>,
}

impl<B> Rejected<B> {
    fn new(response: Response<B>) -> Self {
        Self { response: Box::new(response) }
    }

    /// Returns the status: 429, 413, 500 or 503, or the one that the [responder](crate::Respond) has chosen.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the response.
    #[must_use]
    pub fn into_response(self) -> Response<B> {
        *self.response
    }
}

impl<B> From<Rejected<B>> for Response<B> {
    fn from(rejected: Rejected<B>) -> Self {
        rejected.into_response()
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Rejected<axum::body::Body> {
    fn into_response(self) -> axum::response::Response {
        *self.response
    }
}

impl<B> fmt::Debug for Rejected<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// Charges further units for a request while the service handles it.
///
/// It is a limiter with the key of one request. A layer with
/// [`expose_request_limiter`](crate::RateLimitBuilder::expose_request_limiter) inserts one into the extensions of each
/// request that it admits. Its checks wait as the layer does, are logged and counted as those of the layer, and follow
/// the [`enforcement`](crate::RateLimitBuilder::enforcement) of the layer. They have the
/// [`priority`](crate::RateLimitBuilder::priority) of the request. tollgate-tonic charges each message of a stream with
/// it, and `ws::LimitedSocket` each message of a WebSocket.
///
/// The limiter of an exempt request admits everything. A layer that exempts a request does not replace the limiter that
/// a layer around it has inserted.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, RequestLimiter, key::Header, rejection::Empty};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(100)));
/// let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
///     .respond_with(Empty)
///     .expose_request_limiter(None)
///     .build();
///
/// // The layer charges one unit for the request. The service charges one more for each row.
/// let service = layer.layer(service_fn(|request: Request<u64>| async move {
///     let limiter = request.extensions().get::<RequestLimiter>().unwrap();
///     let result = limiter.check(Cost::new(*request.body())).await;
///     Ok::<_, std::convert::Infallible>(Response::new(limiter.admits(&result)))
/// }));
/// let request = |rows| Request::builder().header("x-api-key", "acme").body(rows).unwrap();
/// assert!(service.clone().oneshot(request(80)).await.unwrap().into_body());
/// assert!(!service.oneshot(request(80)).await.unwrap().into_body());
/// assert_eq!(limiter.peek("acme").await.unwrap().state("rows").unwrap().remaining(), 18);
/// # }
/// ```
#[derive(Clone)]
pub struct RequestLimiter {
    /// `None` admits everything.
    limited: Option<LimitedRequest>,
    /// `None` waits as the layer does.
    wait: Option<Duration>,
}

/// Stores what the checks of one request need.
#[derive(Clone)]
pub(crate) struct LimitedRequest {
    pub(crate) charger: Arc<dyn Charger>,
    pub(crate) limit: LimitRef,
    pub(crate) key: Key,
    pub(crate) priority: Priority,
    pub(crate) labels: LabelIndex,
    pub(crate) rpc: RpcName<Box<str>>,
}

/// Decides in place of a limiter, for requests that have none. A cost of zero fits, and spends nothing.
static WITHOUT_LIMIT: LazyLock<(MemoryStore, PolicySet)> =
    LazyLock::new(|| (MemoryStore::new(), Policy::token_bucket("exempt", Quota::per_second(1)).into()));

impl RequestLimiter {
    /// Admits everything: the limiter of a request that no limit applies to.
    pub(crate) const WITHOUT_LIMIT: Self = Self { limited: None, wait: None };

    /// Creates a request limiter from a limiter and a key, for a service without a layer.
    ///
    /// Its checks are logged and counted as those of a layer with the default options.
    ///
    /// ```
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::RequestLimiter;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(100)));
    /// let rows = RequestLimiter::new(limiter, "acme");
    /// let result = rows.check(Cost::new(60)).await;
    /// assert!(rows.admits(&result));
    /// let result = rows.check(Cost::new(60)).await;
    /// assert!(!rows.admits(&result));
    /// # }
    /// ```
    #[must_use]
    pub fn new(limiter: Limiter, key: impl Into<Key>) -> Self {
        let shared = RateLimitLayer::builder(limiter, Global).into_shared();
        let (none, ()) = Request::new(()).into_parts();
        let labels = LabelIndex::of(&none, &MetricLabels::default());
        let (charger, limit) = (Arc::new(shared), LimitRef::Fixed(0));
        let (key, priority, rpc) = (key.into(), Priority::CRITICAL, RpcName::NONE);
        Self::of_layer(LimitedRequest { charger, limit, key, priority, labels, rpc })
    }

    pub(crate) fn of_layer(limited: LimitedRequest) -> Self {
        Self { limited: Some(limited), wait: None }
    }

    /// Sets how long a check waits for quota at most, in place of the [wait](crate::RateLimitBuilder::wait) of the layer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::RequestLimiter;
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("rows", Quota::per_second(100).with_burst(1)));
    /// let rows = RequestLimiter::new(limiter, "acme").wait(Duration::from_secs(20));
    /// // The second row waits for 10 ms.
    /// for _ in 0..2 {
    ///     let result = rows.check(Cost::ONE).await;
    ///     assert!(rows.admits(&result));
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn wait(mut self, max: Duration) -> Self {
        self.wait = Some(max);
        self
    }

    /// Returns the limiter that is checked. `None` when no limit applies to the request.
    #[must_use]
    pub fn limiter(&self) -> Option<&Limiter> {
        let limited = self.limited.as_ref()?;
        Some(limited.charger.limiter(&limited.limit))
    }

    /// Returns the key of the request. `None` when no limit applies to the request.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.limited.as_ref().map(|limited| &limited.key)
    }

    /// Charges `cost` more units, or none when they do not fit.
    ///
    /// If no limit applies to the request, the decision allows everything and spends nothing. Its only policy is named
    /// `exempt`.
    ///
    /// Waits for quota for as long as the layer [does](crate::RateLimitBuilder::wait), or as [`wait`](Self::wait) says.
    /// Pass the result to [`admits`](Self::admits).
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::check`].
    pub fn check(&self, cost: Cost) -> CheckFuture {
        let Some(LimitedRequest { charger, limit, key, priority, .. }) = &self.limited else {
            let (store, policies) = &*WITHOUT_LIMIT;
            return store.check(Check::new(policies, &Key::new("exempt"), Cost::ZERO));
        };
        charger.charge(limit, key, Costs::new(cost).with_priority(*priority), self.wait)
    }

    /// Returns whether the request may go on after a [`check`](Self::check).
    ///
    /// Logs and counts the result as the layer does. In [shadow mode](crate::RateLimitBuilder::shadow)
    /// the request may always go on.
    #[must_use = "a request that is not admitted must not go on"]
    pub fn admits(&self, result: &Result<Decision, Error>) -> bool {
        let Some(LimitedRequest { charger, limit, key, labels, rpc, .. }) = &self.limited else { return true };
        charger.record(limit, key, result, *labels, &rpc.as_deref())
    }
}

impl fmt::Debug for RequestLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLimiter").field("limiter", &self.limiter()).finish_non_exhaustive()
    }
}
