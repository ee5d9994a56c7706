//! The delay that all clones of a service share.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::Response;
use tokio::time::Instant;

use super::{delay, settings::Settings};

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
