use std::{fmt, sync::Arc};

use tollgate::ConcurrencyLimiter;
use tower_layer::Layer;

use super::{builder::ConcurrencyBuilder, service::ConcurrencyService, shared::Shared};
use crate::{
    key::{BoxedKey, KeyExtractor},
    rejection::Problem,
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

// `build` is defined here and not in `builder.rs`, so that the two files do not import each other.
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
