//! The layer and its options.
//! What a response asks for is read in `delay.rs`, and obeyed in `service.rs`.

use std::time::Duration;

use tollgate_tower::gate::Gated;
use tower_layer::Layer;

use super::{
    delay::Settings,
    service::{Delay, RetryAfter},
};

/// Delays requests until the remote server accepts them again.
///
/// The delay is the first of these that a response has:
///
/// 1. `retry-after-ms` of a 429 or 503, in milliseconds.
/// 2. `Retry-After` of a 429 or 503, in seconds or as a date.
/// 3. `RateLimit` (revisions 08 to 11), `RateLimit-Remaining` or `X-RateLimit-Remaining` without
///    remaining units, on a response with any status: the time until there are more.
///    `X-RateLimit-Reset` may count seconds from now or since the Unix epoch. In `RateLimit` the
///    parameters `a` and `w`, which the draft is going to have, are read as `r` and `t`.
/// 4. `x-ratelimit-reset-requests` and `x-ratelimit-reset-tokens` (OpenAI), or the
///    `anthropic-ratelimit-…-reset` of requests, tokens, input tokens and output tokens, of a 429
///    or 503: the longest reset of the units that are spent. If no unit is spent, it is the longest
///    reset of the tokens.
/// 5. The [`fallback`](Self::fallback), after a 429 or 503.
///
/// With [`delay_on_forbidden`](Self::delay_on_forbidden), the layer reads the first two from a 403
/// too. It ignores:
///
/// - a header that does not parse,
/// - a reset in the past, after a 429 or 503,
/// - the rate limit headers of a response from a cache, because they belong to another request.
///
/// No delay is longer than the [`cap`](Self::cap). The [`jitter`](Self::jitter) is added to it.
///
/// The layer repeats nothing: the caller receives the 429 that causes a delay, and only later
/// requests wait. Other processes do not know of the delay. An [`OutgoingLayer`](crate::OutgoingLayer)
/// repeats requests, and shares the delay between processes.
///
/// Each call of [`layer`](Layer::layer) creates a service for one remote server. The clones of the
/// service share its delay.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use std::time::Duration;
/// use tollgate_outgoing::RetryAfterLayer;
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
#[doc(alias = "backoff")]
#[doc(alias = "429")]
#[derive(Clone, Copy, Debug)]
#[must_use = "a layer does nothing until it is put around a service"]
pub struct RetryAfterLayer {
    settings: Settings,
}

impl RetryAfterLayer {
    /// Creates a layer with a cap of 60 s, a jitter of 0.1 and a fallback of 1 s.
    pub const fn new() -> Self {
        Self {
            settings: Settings::DEFAULT,
        }
    }

    /// Sets the longest delay that one response can cause, without the [`jitter`](Self::jitter).
    /// The default is 60 s. A longer cap than a year counts as a year.
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.settings.cap = cap;
        self
    }

    /// Sets the jitter: each delay grows by a random share of itself, up to `share`. The default is
    /// 0.1.
    ///
    /// Without jitter, many clients would come back at the same instant. It never shortens a delay.
    ///
    /// # Panics
    ///
    /// Panics if the share is not between 0 and 1. In a `const` this fails the build.
    pub const fn jitter(mut self, share: f64) -> Self {
        assert!(
            share >= 0.0 && share <= 1.0,
            "jitter must be a share of 0 to 1"
        );
        self.settings.jitter = share;
        self
    }

    /// Sets the delay after a 429 or 503 that does not say how long to wait. The default is 1 s.
    pub const fn fallback(mut self, fallback: Duration) -> Self {
        self.settings.fallback = fallback;
        self
    }

    /// Delays requests after a 403 with `Retry-After`. The default is `false`.
    ///
    /// GitHub responds with 403 or 429 when a client exceeds a secondary limit:
    ///
    /// - A 403 with `Retry-After` causes a delay with this option.
    /// - A 403 with `X-RateLimit-Remaining: 0` causes a delay until `X-RateLimit-Reset`, with and
    ///   without this option.
    /// - Any other 403 causes no delay, because it means that the client lacks a permission.
    /// - For a 429 without these headers, GitHub asks clients to wait for one minute: set the
    ///   [`fallback`](Self::fallback) to 60 s.
    ///
    /// Source: [Rate limits for the REST
    /// API](https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api).
    pub const fn delay_on_forbidden(mut self, delay: bool) -> Self {
        self.settings.delays_on_forbidden = delay;
        self
    }

    pub(crate) const fn settings(&self) -> Settings {
        self.settings
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
        Gated::new(inner, Delay::new(self.settings))
    }
}
