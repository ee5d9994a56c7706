use std::{fmt, sync::Arc};

use tower_layer::Layer;

use crate::{KeyExtractor, LimiterSource, RateLimit, RateLimitBuilder, rejection::Problem, shared::Shared};

/// Puts a rate limit in front of a service.
///
/// Each request spends one unit of every policy of the [`Limiter`](tollgate::Limiter), or is answered without the
/// service: see [`rejection`](crate::rejection). Every answer tells in the `RateLimit-Policy` and
/// `RateLimit` fields (syntax of draft-ietf-httpapi-ratelimit-headers, revisions 08 to 11) what
/// holds and what is left.
///
/// To guard something that is not a request, ask the [`Limiter`](tollgate::Limiter)
/// itself.
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
/// The options stand behind [`builder`](Self::builder):
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, key::Global, rejection::Empty};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
/// let layer: RateLimitLayer<Global, Empty> =
///     RateLimitLayer::builder(limiter, Global).respond_with(Empty).build();
/// # let _ = layer;
/// ```
pub struct RateLimitLayer<K, R = Problem> {
    shared: Arc<Shared<K, R>>,
}

impl<K: KeyExtractor> RateLimitLayer<K> {
    /// A layer with the default options: `limits` says how much, one [`Limiter`](tollgate::Limiter)
    /// or [`TieredLimiters`](crate::TieredLimiters); `key` says whose.
    #[must_use]
    pub fn new(limits: impl Into<LimiterSource>, key: K) -> Self {
        Self::builder(limits, key).build()
    }

    /// A builder for the options.
    pub fn builder(limits: impl Into<LimiterSource>, key: K) -> RateLimitBuilder<K> {
        RateLimitBuilder::new(limits.into(), key)
    }
}

impl<K, R> RateLimitLayer<K, R> {
    pub(crate) fn from_shared(shared: Shared<K, R>) -> Self {
        Self { shared: Arc::new(shared) }
    }
}

impl<S, K, R> Layer<S> for RateLimitLayer<K, R> {
    type Service = RateLimit<S, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.shared))
    }
}

impl<K, R> Clone for RateLimitLayer<K, R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K, R> fmt::Debug for RateLimitLayer<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}
