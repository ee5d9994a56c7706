use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::breaker::Breaker;
use crate::{Error, ErrorKind};

/// Holds what is known of a server's health.
#[derive(Debug)]
pub(super) struct Health {
    pub(super) breaker: Breaker,
    /// The error of a check while the breaker is open.
    refusal: ArcSwap<Error>,
    /// Wakes the worker of the queue when the breaker has opened.
    pub(super) opened: Notify,
    /// Makes the probe start again at once, because the server is another one now.
    pub(super) probe_now: Notify,
}

impl Health {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            breaker: Breaker::new(),
            refusal: ArcSwap::from_pointee(silent()),
            opened: Notify::new(),
            probe_now: Notify::new(),
        })
    }

    pub(super) fn refusal(&self) -> Error {
        Error::clone(&self.refusal.load())
    }

    pub(super) fn refuse_with(&self, error: Error) {
        self.refusal.store(Arc::new(error));
    }

    /// Counts a check that missed its deadline. Returns whether that opened the breaker.
    pub(super) fn missed(&self) -> bool {
        let has_opened = self.breaker.missed();
        if has_opened {
            self.refuse_with(silent());
            tracing::debug!("redis did not answer several checks: none is sent until it answers a probe");
            self.opened.notify_one();
        }
        has_opened
    }

    /// Opens the breaker because a retry has no use before a probe was answered. Returns whether it was closed.
    pub(super) fn failed(&self, error: &Error) -> bool {
        self.refuse_with(error.clone());
        let has_opened = self.breaker.open();
        if has_opened {
            tracing::debug!(%error, "redis failed: no check is sent until it answers a probe");
            self.opened.notify_one();
        }
        has_opened
    }
}

/// Creates the error of a check that is not sent because the server did not answer before.
pub(super) fn silent() -> Error {
    Error::new(ErrorKind::CircuitOpen, "redis did not answer earlier checks and is not asked until it answers a probe")
}
