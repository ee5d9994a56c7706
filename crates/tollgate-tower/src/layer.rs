use std::{fmt, sync::Arc};

use http::request::Parts;
use tollgate::{Cost, Limiter};
use tower_layer::Layer;

use crate::{RateLimit, rejection::Problem, shared::Shared};

/// Puts a rate limit in front of a service.
///
/// Each request spends one unit of every policy of the [`Limiter`], or is answered without the
/// service: see [`rejection`](crate::rejection). Every answer tells in the `RateLimit-Policy` and
/// `RateLimit` fields (syntax of draft-ietf-httpapi-ratelimit-headers, revisions 08 to 11) what
/// holds and what is left.
///
/// To guard something that is not a request, ask the [`Limiter`] itself.
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

impl<K> RateLimitLayer<K> {
    /// A layer with the default options: `limiter` says how much, `key` who.
    #[must_use]
    pub fn new(limiter: Limiter, key: K) -> Self {
        Self::builder(limiter, key).build()
    }

    /// A builder for the options.
    pub fn builder(limiter: Limiter, key: K) -> RateLimitBuilder<K> {
        RateLimitBuilder { shared: Shared::new(limiter, key) }
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
        f.debug_struct("RateLimitLayer").field("limiter", &self.shared.limit.limiter).finish_non_exhaustive()
    }
}

/// Builds a [`RateLimitLayer`].
#[must_use = "a builder does nothing until it is built"]
pub struct RateLimitBuilder<K, R = Problem> {
    shared: Shared<K, R>,
}

impl<K, R> RateLimitBuilder<K, R> {
    /// What a request costs; one unit by default. A cost of zero passes and is told what is left;
    /// a cost above the burst of a policy is answered with 413.
    ///
    /// ```
    /// # use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("rows", Quota::per_second(100)));
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .cost(|parts| if parts.method.is_safe() { Cost::ONE } else { Cost::new(5) })
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn cost(mut self, cost: impl Fn(&Parts) -> Cost + Send + Sync + 'static) -> Self {
        self.shared.options.cost = Some(Box::new(cost));
        self
    }

    /// Which requests pass without a look at their key or quota.
    ///
    /// ```
    /// # use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// # use tollgate_tower::{RateLimitLayer, key::Global};
    /// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
    /// let layer = RateLimitLayer::builder(limiter, Global)
    ///     .exempt(|parts| parts.uri.path() == "/healthz")
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.shared.options.exempt = Some(Box::new(exempt));
        self
    }

    /// Who writes the answer when the service is not called; [`Problem`] by default. The status is
    /// the responder's choice; the middleware adds the fields that it leaves out.
    pub fn respond_with<R2>(self, responder: R2) -> RateLimitBuilder<K, R2> {
        RateLimitBuilder { shared: self.shared.respond_with(responder) }
    }

    /// The layer.
    #[must_use]
    pub fn build(self) -> RateLimitLayer<K, R> {
        RateLimitLayer { shared: Arc::new(self.shared) }
    }
}

impl<K, R> fmt::Debug for RateLimitBuilder<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBuilder").field("limiter", &self.shared.limit.limiter).finish_non_exhaustive()
    }
}
