//! For calls that go out: obeys the limits that the other side tells.
//!
//! A service that calls somebody else's API learns of its limits from the answers: 429 or 503 with
//! `Retry-After`, `RateLimit` fields with nothing left. [`RetryAfterLayer`] holds further calls
//! back until the other side wants them. To stay below a limit that is known beforehand put a
//! [`RateLimitLayer`](crate::RateLimitLayer) with [`wait`](crate::RateLimitBuilder::wait) around
//! the same service: several replicas then keep it together.

mod advice;
pub mod future;

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    mem,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::Response;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use future::ResponseFuture;

/// Holds calls back while the other side does not want them.
///
/// What counts is, in this order: `Retry-After` of a 429 or 503, in seconds or as a date; on any
/// answer the time until there is more, where `RateLimit` (revisions 08 to 11), `RateLimit-Remaining`
/// or `X-RateLimit-Remaining` says that nothing is left; for a 429 or 503 without either, a
/// [second](Self::fallback). Fields that cannot be read are ignored, and so are `RateLimit` fields
/// of an answer out of a cache.
///
/// The answer itself is passed on: to send the request again is the caller's decision, by
/// `tower::retry` outside of this layer for example, whose second try is then held back.
///
/// Each service that the layer makes stands for one other side; its clones are held back together.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use std::time::Duration;
/// use tollgate_tower::RetryAfterLayer;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let api = service_fn(|_: Request<()>| async {
///     let answer = Response::builder().status(StatusCode::TOO_MANY_REQUESTS).header("retry-after", "7");
///     Ok::<_, std::convert::Infallible>(answer.body(()).unwrap())
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
    rules: Rules,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    cap: Duration,
    jitter: f64,
    fallback: Duration,
}

impl RetryAfterLayer {
    /// Obeys for at most a minute at a time, and adds up to a tenth to each wait.
    pub const fn new() -> Self {
        let rules = Rules { cap: Duration::from_secs(60), jitter: 0.1, fallback: Duration::from_secs(1) };
        Self { rules }
    }

    /// The longest that one answer holds calls back, whatever it says; a minute by default.
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.rules.cap = cap;
        self
    }

    /// Up to which share of a wait is added to it, at random for each call; 0.1 by default. It
    /// keeps many clients from coming back at the same instant, and never shortens a wait.
    ///
    /// # Panics
    ///
    /// When the share is not 0 to 1.
    pub const fn jitter(mut self, share: f64) -> Self {
        assert!(share >= 0.0 && share <= 1.0, "jitter must be a share of 0 to 1");
        self.rules.jitter = share;
        self
    }

    /// How long a 429 or 503 holds calls back that does not say how long; a second by default.
    pub const fn fallback(mut self, fallback: Duration) -> Self {
        self.rules.fallback = fallback;
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
        RetryAfter { inner, gate: Arc::new(Gate { rules: self.rules, closed: Mutex::new(None) }) }
    }
}

/// A service whose calls are held back, made by [`RetryAfterLayer`].
#[derive(Clone)]
pub struct RetryAfter<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S, Request, Body> Service<Request> for RetryAfter<S>
where
    S: Service<Request, Response = Response<Body>> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let gate = Arc::clone(&self.gate);
        match gate.opens_at() {
            None => ResponseFuture::calling(self.inner.call(request), gate),
            Some(at) => {
                // The service that is ready goes along; what stays has to become ready again.
                let clone = self.inner.clone();
                ResponseFuture::holding(at, mem::replace(&mut self.inner, clone), request, gate)
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RetryAfter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryAfter").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What the other side said last.
struct Gate {
    rules: Rules,
    closed: Mutex<Option<Closed>>,
}

#[derive(Clone, Copy)]
struct Closed {
    until: Instant,
    /// What is added at most.
    spread: Duration,
}

impl Gate {
    /// When a call that comes now may go; `None` for at once.
    fn opens_at(&self) -> Option<Instant> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let Closed { until, spread } = (*closed)?;
        if until <= Instant::now() {
            *closed = None;
            return None;
        }
        Some(until + spread.mul_f64(random()))
    }

    /// Takes to heart what an answer says.
    fn heed<B>(&self, response: &Response<B>) {
        let Some(wait) = advice::of(response.status(), response.headers(), self.rules.fallback) else { return };
        let wait = wait.min(self.rules.cap);
        let until = Instant::now() + wait;
        tracing::debug!(wait_us = wait.as_micros() as u64, status = response.status().as_u16(), "calls are held back");
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if closed.is_none_or(|closed| closed.until < until) {
            *closed = Some(Closed { until, spread: wait.mul_f64(self.rules.jitter) });
        }
    }
}

/// From 0 to 1, out of the seed of a hash map.
fn random() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}
