//! The layer and the service that users hold, and how they take part in the skeleton of `gate/`.
//! The steps themselves are in `ask.rs` and `reply.rs`, options in `builder/`.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_service::Service;

use crate::{
    gate::{Gate, Gated, take_ready},
    key::{BoxedKey, ExtractorOf, KeyExtractor},
    rate_limit::{
        builder::RateLimitBuilder,
        limits::{Limits, Steps},
        request::{Admission, Step, StepVerdict},
        source::LimiterSource,
    },
    rejection::{Problem, Respond},
};

/// Limits the requests of a service.
///
/// Each request spends one unit of every policy of the [`Limiter`](tollgate_core::Limiter). A request
/// that does not fit is [rejected](crate::rejection), and the service is not called. The response
/// to each request that was checked carries the headers `RateLimit-Policy` and `RateLimit`, in the
/// syntax of draft-ietf-httpapi-ratelimit-headers, revisions 08 to 11.
///
/// To limit something that is not an HTTP request, use the [`Limiter`](tollgate_core::Limiter) itself.
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
/// [`builder`](Self::builder) offers the options.
///
/// # The body of a rejected request
///
/// The response to a rejected request does not wait for the body of the request. The layer reads
/// the rest of a body of axum or tonic in the background. So a client that is still sending
/// receives the response, and the server can keep the connection. The layer drops a body of another
/// type, such as hyper's `Incoming`: put a [`DrainLayer`](crate::drain::DrainLayer) around it. The
/// module [`drain`](crate::drain) has the bounds.
#[doc(alias = "throttle")]
#[doc(alias = "429")]
#[doc(alias = "too many requests")]
pub struct RateLimitLayer<K = BoxedKey, R = Problem> {
    pub(super) state: Arc<LayerState<K, R>>,
}

/// Stores what all clones of a layer and all of its services share.
pub(super) struct LayerState<K, R> {
    pub(super) limits: Arc<Limits>,
    pub(super) key: K,
    pub(super) responder: Arc<R>,
}

impl<K, R> LayerState<K, R> {
    #[inline(always)]
    pub(super) fn steps<B>(&self) -> Steps<'_, B>
    where
        R: Respond<B>,
    {
        Steps {
            limits: &self.limits,
            responder: &*self.responder,
        }
    }

    // Inlined by force: the verdict is built where the service reads it, instead of being copied
    // there.
    #[inline(always)]
    pub(super) fn begin<B>(&self, parts: &mut Parts) -> StepVerdict<B>
    where
        K: KeyExtractor,
        R: Respond<B>,
        B: 'static,
    {
        self.steps().begin(|parts| self.key.extract(parts), parts)
    }
}

impl<K: KeyExtractor> RateLimitLayer<K> {
    /// Creates a layer with the default options.
    ///
    /// `limiters` is one [`Limiter`](tollgate_core::Limiter), or any other [`LimiterSource`]: tiers,
    /// limits that change while the service runs, or the limits of tenants. `key` finds the key of
    /// a request: it is a `K`.
    #[must_use]
    pub fn new(limiters: impl Into<LimiterSource>, key: impl ExtractorOf<K>) -> Self {
        Self::builder(limiters, key).build()
    }

    /// Creates a builder, which offers the options.
    pub fn builder(
        limiters: impl Into<LimiterSource>,
        key: impl ExtractorOf<K>,
    ) -> RateLimitBuilder<K> {
        RateLimitBuilder::new(limiters.into(), key.into_extractor())
    }
}

impl<K, R> RateLimitBuilder<K, R> {
    /// Builds the layer.
    ///
    /// # Panics
    ///
    /// When the requests have a [customer](Self::customer), and a limiter of the layer has no [fair
    /// shares](tollgate_core::LimiterBuilder::fair_shares).
    #[must_use]
    pub fn build(self) -> RateLimitLayer<K, R> {
        let (limits, key, responder) = self.into_parts();
        RateLimitLayer {
            state: Arc::new(LayerState {
                limits: Arc::new(limits),
                key,
                responder: Arc::new(responder),
            }),
        }
    }
}

crate::gate::is_layer!(RateLimitLayer<K, R>, state);

tollgate_core::debug_fields! { RateLimitLayer<K, R>: limits = .state.limits, .. }

/// Limits the requests of an inner service. [`RateLimitLayer`] creates it.
///
/// It has the response and error types of the inner service.
pub type RateLimit<S, K = BoxedKey, R = Problem> = Gated<S, RateLimitLayer<K, R>>;

impl<S, K, R, ReqBody, ResBody> Gate<S, ReqBody> for RateLimitLayer<K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ResBody: 'static,
{
    type Pass = Admission;
    type Wait = Step;
    type Response = S::Response;

    // Inlined by force: the verdict is built where the service reads it, instead of being copied
    // there.
    #[inline(always)]
    fn admit(&self, parts: &mut Parts) -> StepVerdict<ResBody> {
        self.state.begin(parts)
    }

    fn poll_wait(
        &self,
        step: &mut Step,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<StepVerdict<ResBody>> {
        self.state.steps().poll_step(step, parts, cx)
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
