//! Limits requests inside a handler, with the answers of a layer.
//! It takes the same steps as a layer: what they do is in `ask.rs` and `reply.rs`.

use std::{fmt, future::poll_fn, sync::Arc};

use http::{Response, StatusCode, request::Parts};
use tollgate_core::{Cost, Costs, Decision, Error, Key, Limiter};

use crate::{
    charge::Due,
    key::KeyExtractor,
    rate_limit::{
        layer::RateLimitLayer,
        limits::{LimitRef, Limits, Steps},
        request::{Admission, Asked, StepVerdict},
        reservation::{MeteredReservation, ReserveOptions},
    },
    rejection::Respond,
};

/// A request that a [`HandlerLimiter`](HandlerLimiter) has admitted. [`complete`](Self::complete)
/// finishes its response.
///
/// If it is dropped instead, the request counts as [cancelled](crate::Outcome::Cancelled). This
/// matters with the options [`final_cost`](crate::RateLimitBuilder::final_cost),
/// [`charge_on`](crate::RateLimitBuilder::charge_on) and
/// [`charge_after`](crate::RateLimitBuilder::charge_after).
#[must_use = "the response carries the rate limit headers only after `complete`"]
pub struct Admitted(Admission);

impl Admitted {
    /// Completes the response of the handler.
    ///
    /// Adds the rate limit headers, and settles the final cost where the layer has one. If the
    /// response already has headers of the same format, both are combined, as in [stacked
    /// layers](crate::guide::layers#headers).
    pub fn complete<B>(mut self, mut response: Response<B>) -> Response<B> {
        self.0.complete(&mut response);
        response
    }
}

tollgate_core::debug_fields! { Admitted: .. }

/// Limits requests inside a handler, with the answers of a layer.
///
/// A layer sees only the head of a request. When the key is in the body, such as a user name in
/// JSON, only the handler knows it.
/// [`RateLimitLayer::handler_limiter`](crate::RateLimitLayer::handler_limiter) creates a handler
/// limiter from a limiter and the options of a layer. A request that it rejects receives the same
/// response as from the layer: status, problem document, `Retry-After`, rate limit headers and
/// exposed names. Denials are logged and counted in the same way.
///
/// The options apply as in the layer, with these exceptions. The key comes from the handler.
/// [`exempt`](crate::RateLimitBuilder::exempt) and [`networks`](crate::RateLimitBuilder::networks)
/// do not apply. A handler that panics counts as [cancelled](crate::Outcome::Cancelled). `B` is the
/// body type of the handler's responses.
///
/// Use a layer to limit requests by their head. When a layer is around the handler too, give the
/// policies of both different names: see [stacked layers](crate::guide::layers#headers). A handler
/// that checks before it has read the body needs a [`DrainLayer`](crate::drain::DrainLayer) around
/// it, so that a client that is still sending receives the rejection.
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
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
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
/// let store = MemoryStore::builder().clock(Clock::manual(0)).build();
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
    limits: Arc<Limits>,
    responder: Arc<dyn Respond<B>>,
    limit: LimitRef,
}

impl<K: KeyExtractor, R> RateLimitLayer<K, R> {
    /// Returns a [`HandlerLimiter`] that checks `limiter` inside a handler, with the options of
    /// this layer.
    ///
    /// The limiters of the layer are not checked. `B` is the body type of the handler's responses.
    #[must_use]
    pub fn handler_limiter<B>(&self, limiter: Limiter) -> HandlerLimiter<B>
    where
        R: Respond<B>,
    {
        HandlerLimiter {
            limits: Arc::clone(&self.state.limits),
            responder: self.state.responder.clone(),
            limit: self.state.limits.limit(limiter),
        }
    }
}

impl<B: 'static> HandlerLimiter<B> {
    /// Returns a handler limiter with the same options and another limiter, such as the one of a
    /// tenant.
    #[must_use]
    pub fn with_limiter(&self, limiter: Limiter) -> Self {
        Self {
            limit: self.limits.limit(limiter),
            ..self.clone()
        }
    }

    /// Returns the limiter that is checked.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        self.limit.get(&self.limits.fixed).limiter
    }

    fn steps(&self) -> Steps<'_, B> {
        Steps {
            limits: &self.limits,
            responder: &*self.responder,
        }
    }

    /// Checks the limiter. The request costs as much as the [layer](crate::RateLimitBuilder::cost)
    /// charges for it.
    ///
    /// `request` is the head of the request. As in a layer, options such as
    /// [`expose_decisions`](crate::RateLimitBuilder::expose_decisions) insert into its extensions.
    ///
    /// # Errors
    ///
    /// Returns the response to a rejected request: 429 when it is denied, 413 when its cost never
    /// fits, 503 when the store did not decide and the limiter is
    /// [closed](tollgate_core::Outage::Closed), and 500 when the key has too few levels for a policy.
    pub fn check(
        &self,
        request: &mut Parts,
        key: impl Into<Key>,
    ) -> impl Future<Output = Result<Admitted, Rejected<B>>> + Send {
        let costs = self.limits.costs_of_handler(request, self.limiter());
        self.check_ranked(request, key.into(), costs)
    }

    /// Checks the limiter at the given cost: one [`Cost`] for all policies, or [`Costs`] for each.
    ///
    /// The check has the [`priority`](crate::RateLimitBuilder::priority) of the request, or that of
    /// the costs where it is below critical.
    ///
    /// # Errors
    ///
    /// The same as [`check`](Self::check). The status is also 500 when the costs do not name each
    /// policy.
    pub fn check_costs(
        &self,
        request: &mut Parts,
        key: impl Into<Key>,
        costs: impl Into<Costs>,
    ) -> impl Future<Output = Result<Admitted, Rejected<B>>> + Send {
        let costs = self.limits.ranked(costs.into(), request, self.limiter());
        self.check_ranked(request, key.into(), costs)
    }

    async fn check_ranked(
        &self,
        request: &mut Parts,
        key: Key,
        costs: Costs,
    ) -> Result<Admitted, Rejected<B>> {
        self.take(request, |steps, limit, request| {
            steps.charge_costs(costs, limit, &key, request)
        })
        .await
        .map(Admitted)
    }

    /// Turns the result of a check into an admission or a rejection, for a handler that checks the
    /// [`limiter`](Self::limiter) itself.
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
        let mut context =
            self.steps()
                .context(self.limit.clone(), &key.into(), Asked::Each, request);
        context.due = Due::One(result.as_ref().map_or(Cost::ONE, Decision::cost));
        match self.steps().judge(result.as_ref(), &mut context, request) {
            StepVerdict::Admit(admission) => Ok(Admitted(admission)),
            StepVerdict::Reject(response) => Err(Rejected::new(response)),
            StepVerdict::Wait(_) => unreachable!("a result is never waited for"),
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
        let estimate = self.limits.ranked(estimate, request, self.limiter());
        let reserve = |steps: Steps<'_, B>, limit, request: &mut Parts| {
            steps.reserve(estimate, options, limit, &key, request)
        };
        let mut admission = self.take(request, reserve).await?;
        let reservation = admission.take_reservation();
        let reservation =
            reservation.unwrap_or_else(|| MeteredReservation::new(self.limiter(), None));
        Ok((Admitted(admission), reservation))
    }

    /// Takes a request through the steps of the layer, from the first one to its end.
    async fn take(
        &self,
        request: &mut Parts,
        first: impl FnOnce(Steps<'_, B>, LimitRef, &mut Parts) -> StepVerdict<B>,
    ) -> Result<Admission, Rejected<B>> {
        let mut step = match first(self.steps(), self.limit.clone(), request) {
            StepVerdict::Admit(admission) => return Ok(admission),
            StepVerdict::Reject(response) => return Err(Rejected::new(response)),
            StepVerdict::Wait(step) => step,
        };
        loop {
            match poll_fn(|cx| self.steps().poll_step(&mut step, request, cx)).await {
                StepVerdict::Admit(admission) => return Ok(admission),
                StepVerdict::Reject(response) => return Err(Rejected::new(response)),
                StepVerdict::Wait(next) => step = next,
            }
        }
    }
}

impl<B> Clone for HandlerLimiter<B> {
    fn clone(&self) -> Self {
        Self {
            limits: Arc::clone(&self.limits),
            responder: Arc::clone(&self.responder),
            limit: self.limit.clone(),
        }
    }
}

impl<B: 'static> fmt::Debug for HandlerLimiter<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerLimiter")
            .field("limiter", self.limiter())
            .finish_non_exhaustive()
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
        Self {
            response: Box::new(response),
        }
    }

    /// Returns the status: 429, 413, 500 or 503, or the one that the [responder](crate::Respond)
    /// has chosen.
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

tollgate_core::debug_fields! { Rejected<B>: status = .status(), .. }
