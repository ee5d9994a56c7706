//! The service that delays requests, its future, and the delay that all clones share.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Response;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use super::{delay, layer::Settings};

/// Delays the requests of an inner service. [`RetryAfterLayer`](super::RetryAfterLayer) creates it.
///
/// Its response and error types are those of the inner service. Clones share the delay. A request that
/// is dropped during its delay is never sent.
#[derive(Clone)]
pub struct RetryAfter<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S> RetryAfter<S> {
    pub(super) fn new(inner: S, gate: Gate) -> Self {
        Self { inner, gate: Arc::new(gate) }
    }
}

impl<S, Request, Body> Service<Request> for RetryAfter<S>
where
    S: Service<Request, Response = Response<Body>> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = DelayedFuture<S, Request>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let gate = Arc::clone(&self.gate);
        match gate.opens_at() {
            None => DelayedFuture::calling(self.inner.call(request), gate),
            Some(opens_at) => {
                // The future takes the service that is ready. Its clone has to become ready before the next call.
                let clone = self.inner.clone();
                DelayedFuture::waiting(opens_at, mem::replace(&mut self.inner, clone), request, gate)
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RetryAfter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryAfter").field("inner", &self.inner).finish_non_exhaustive()
    }
}

// Written by hand, because a named future needs no box: a request that is not delayed allocates nothing here.
pin_project! {
    /// Resolves to the response of the inner service, which is called after the delay.
    #[must_use = "futures do nothing unless polled"]
    pub struct DelayedFuture<S, Request>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request, S::Future>,
        gate: Arc<Gate>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Request, F> {
        Waiting { #[pin] sleep: Sleep, delayed: Option<(S, Request)> },
        Calling { #[pin] future: F },
    }
}

impl<S: Service<Request>, Request> DelayedFuture<S, Request> {
    pub(super) fn calling(future: S::Future, gate: Arc<Gate>) -> Self {
        Self { state: State::Calling { future }, gate }
    }

    pub(super) fn waiting(opens_at: Instant, ready: S, request: Request, gate: Arc<Gate>) -> Self {
        Self { state: State::Waiting { sleep: sleep_until(opens_at), delayed: Some((ready, request)) }, gate }
    }
}

impl<S, Request, Body> Future for DelayedFuture<S, Request>
where
    S: Service<Request, Response = Response<Body>>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Waiting { mut sleep, delayed } => {
                    ready!(sleep.as_mut().poll(cx));
                    if let Some(opens_at) = this.gate.opens_at() {
                        // Meanwhile the response to another request has extended the delay.
                        sleep.reset(opens_at);
                        continue;
                    }
                    let (mut ready, request) = delayed.take().expect("the request is taken once");
                    State::Calling { future: ready.call(request) }
                }
                StateProj::Calling { future } => {
                    let response = ready!(future.poll(cx))?;
                    this.gate.apply(&response);
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Request>, Request> fmt::Debug for DelayedFuture<S, Request> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "DelayedFuture::Waiting",
            State::Calling { .. } => "DelayedFuture::Calling",
        })
    }
}

/// Holds requests back until the remote server accepts them again.
pub(super) struct Gate {
    settings: Settings,
    closed: Mutex<Option<Closed>>,
}

#[derive(Clone, Copy)]
struct Closed {
    until: Instant,
    /// The longest random addition.
    jitter: Duration,
}

impl Gate {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, closed: Mutex::new(None) }
    }

    /// Returns when a request may go out that arrives now. `None` means at once.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        let mut closed = self.closed();
        let Closed { until, jitter } = (*closed)?;
        if until <= Instant::now() {
            *closed = None;
            return None;
        }
        Some(until + jitter.mul_f64(fastrand::f64()))
    }

    /// Applies the delay from a response.
    pub(super) fn apply<B>(&self, response: &Response<B>) {
        let Some(delay) = delay::of(response.status(), response.headers(), &self.settings) else { return };
        let delay = delay.min(self.settings.cap);
        let until = Instant::now() + delay;
        tracing::debug!(
            delay_us = delay.as_micros() as u64,
            status = response.status().as_u16(),
            "requests are delayed"
        );
        let mut closed = self.closed();
        if closed.is_none_or(|closed| closed.until < until) {
            *closed = Some(Closed { until, jitter: delay.mul_f64(self.settings.jitter) });
        }
    }

    fn closed(&self) -> MutexGuard<'_, Option<Closed>> {
        // A poisoned lock is harmless: the value is replaced as a whole, so no panic leaves it half written.
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
