//! Delays the requests of an inner service. All clones share the delay.
//! How long a response asks to wait is read in `delay.rs`.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use tokio::time::{Instant, Sleep, sleep_until};
use tollgate_tower::gate::{Gate, Gated, Verdict, take_ready};
use tower_service::Service;

use super::delay::{self, Settings};

/// Delays the requests of an inner service. [`RetryAfterLayer`](super::RetryAfterLayer) creates it.
///
/// It has the response and error types of the inner service. Clones share the delay. A request
/// that is dropped during its delay is never sent.
pub type RetryAfter<S> = Gated<S, Delay>;

/// The longest wait that is measured: a year.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

/// Keeps requests back until the remote server accepts them again.
#[derive(Clone)]
pub struct Delay(Arc<DelayState>);

struct DelayState {
    settings: Settings,
    closed: Mutex<Option<Closed>>,
}

#[derive(Clone, Copy)]
struct Closed {
    until: Instant,
    /// The longest random addition.
    jitter: Duration,
}

impl Delay {
    pub(super) fn new(settings: Settings) -> Self {
        Self(Arc::new(DelayState {
            settings,
            closed: Mutex::new(None),
        }))
    }

    /// Returns when a request may go out that arrives now. `None` means at once.
    fn opens_at(&self) -> Option<Instant> {
        let mut closed = self.closed();
        let Closed { until, jitter } = (*closed)?;
        if until <= Instant::now() {
            *closed = None;
            return None;
        }
        Some(until + jitter.mul_f64(fastrand::f64()))
    }

    /// Applies the delay from a response.
    fn apply<B>(&self, response: &Response<B>) {
        let settings = &self.0.settings;
        let Some(delay) = delay::of(response.status(), response.headers(), settings) else {
            return;
        };
        let delay = delay.min(settings.cap).min(FOR_EVER);
        let until = Instant::now() + delay;
        tracing::debug!(
            delay_us = delay.as_micros() as u64,
            status = response.status().as_u16(),
            "requests are delayed"
        );
        let mut closed = self.closed();
        if closed.is_none_or(|closed| closed.until < until) {
            *closed = Some(Closed {
                until,
                jitter: delay.mul_f64(settings.jitter),
            });
        }
    }

    fn closed(&self) -> MutexGuard<'_, Option<Closed>> {
        // A poisoned lock is harmless: the value is replaced as a whole, so no panic leaves it half
        // written.
        self.0.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S, B, RB> Gate<S, B> for Delay
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
{
    type Pass = Self;
    type Wait = Pin<Box<Sleep>>;
    type Response = S::Response;

    fn admit(&self, _: &mut Parts) -> Verdict<Self, Self::Wait, S::Response> {
        match self.opens_at() {
            None => Verdict::Admit(self.clone()),
            Some(opens_at) => Verdict::Wait(Box::pin(sleep_until(opens_at))),
        }
    }

    fn poll_wait(
        &self,
        sleep: &mut Self::Wait,
        _: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Verdict<Self, Self::Wait, S::Response>> {
        loop {
            ready!(sleep.as_mut().poll(cx));
            match self.opens_at() {
                None => return Poll::Ready(Verdict::Admit(self.clone())),
                // Meanwhile the response to another request has extended the delay.
                Some(opens_at) => sleep.as_mut().reset(opens_at),
            }
        }
    }

    fn hold(service: &mut S, _: &Self::Wait) -> S {
        take_ready(service)
    }

    fn complete(pass: Option<&mut Self>, response: S::Response) -> S::Response {
        if let Some(delay) = pass {
            delay.apply(&response);
        }
        response
    }
}

impl fmt::Debug for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delay").field(&self.0.settings).finish()
    }
}
