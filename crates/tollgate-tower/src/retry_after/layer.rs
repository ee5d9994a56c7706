use std::time::Duration;

use tower_layer::Layer;

use super::{
    gate::{Gate, Settings},
    service::RetryAfter,
};

/// Delays requests until the remote server accepts them again.
///
/// The delay comes from the first of these that a response has:
///
/// 1. `Retry-After` of a 429 or 503, in seconds or as a date.
/// 2. `RateLimit` (revisions 08 to 11), `RateLimit-Remaining` or `X-RateLimit-Remaining` without
///    remaining units, on a response with any status: the time until there are more. These headers are
///    ignored in a response from a cache.
/// 3. The [`fallback`](Self::fallback), for a 429 or 503.
///
/// A header that does not parse is ignored.
///
/// The layer passes the response on and does not repeat the request. Put `tower::retry` outside of
/// this layer to repeat it: the repeated request is then delayed.
///
/// Each call of [`layer`](Layer::layer) creates a service for one remote server. The clones of the
/// service share its delay.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use std::time::Duration;
/// use tollgate_tower::RetryAfterLayer;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let api = service_fn(|_: Request<()>| async {
///     let response = Response::builder().status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "7");
///     Ok::<_, std::convert::Infallible>(response.body(()).unwrap())
/// });
/// let mut api = RetryAfterLayer::new().layer(api);
///
/// let start = tokio::time::Instant::now();
/// api.ready().await.unwrap().call(Request::new(())).await.unwrap();
/// assert!(start.elapsed() < Duration::from_secs(1));
/// api.ready().await.unwrap().call(Request::new(())).await.unwrap();
/// assert!(start.elapsed() >= Duration::from_secs(7));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RetryAfterLayer {
    settings: Settings,
}

impl RetryAfterLayer {
    /// Creates a layer with a cap of 60 s, a jitter of 0.1 and a fallback of 1 s.
    pub const fn new() -> Self {
        let settings = Settings { cap: Duration::from_secs(60), jitter: 0.1, fallback: Duration::from_secs(1) };
        Self { settings }
    }

    /// Sets the longest delay that one response can cause. The default is 60 s.
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.settings.cap = cap;
        self
    }

    /// Sets the jitter: each delay grows by a random share of itself, up to `share`. The default is 0.1.
    ///
    /// Jitter keeps many clients from returning at the same instant. It never shortens a delay.
    ///
    /// # Panics
    ///
    /// Panics if the share is not between 0 and 1. In a `const` this fails the build.
    pub const fn jitter(mut self, share: f64) -> Self {
        assert!(share >= 0.0 && share <= 1.0, "jitter must be a share of 0 to 1");
        self.settings.jitter = share;
        self
    }

    /// Sets the delay after a 429 or 503 that does not say how long to wait. The default is 1 s.
    pub const fn fallback(mut self, fallback: Duration) -> Self {
        self.settings.fallback = fallback;
        self
    }
}

impl Default for RetryAfterLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for RetryAfterLayer {
    type Service = RetryAfter<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryAfter::new(inner, Gate::new(self.settings))
    }
}
