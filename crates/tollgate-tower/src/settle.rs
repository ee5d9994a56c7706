use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
};

use http::{StatusCode, response};
use tokio::runtime::Handle;
use tollgate::{Cost, Decision, Key, Limiter};

/// How a request ended that was let pass; see
/// [`RateLimitBuilder::settle`](crate::RateLimitBuilder::settle).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The service answered; the body may be still to come.
    Response(&'a response::Parts),
    /// The service ended with an error instead of a response.
    Failed,
    /// The service panicked.
    Panicked,
    /// The request was given up before the service answered: most often the client went away.
    Abandoned,
}

impl<'a> Outcome<'a> {
    /// The head of the response, if there is one.
    #[must_use]
    pub fn response(&self) -> Option<&'a response::Parts> {
        match self {
            Self::Response(parts) => Some(parts),
            _ => None,
        }
    }

    /// The status that the client sees, or would see: 500 where the service failed or panicked,
    /// none where the client is gone.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Response(parts) => Some(parts.status),
            Self::Failed | Self::Panicked => Some(StatusCode::INTERNAL_SERVER_ERROR),
            Self::Abandoned => None,
        }
    }
}

pub(crate) type Settle = Arc<dyn Fn(Outcome<'_>, Cost) -> Cost + Send + Sync>;

/// What a request was charged, until it is known what it costs. To drop it settles too.
pub(crate) struct Charge {
    limiter: Limiter,
    key: Key,
    decision: Decision,
    settle: Option<Settle>,
    is_running: bool,
}

impl Charge {
    pub(crate) fn new(limiter: Limiter, key: Key, decision: Decision, settle: Settle) -> Self {
        Self { limiter, key, decision, settle: Some(settle), is_running: false }
    }

    /// Runs the service. If this unwinds, the charge knows that the service panicked, wherever it
    /// is caught.
    pub(crate) fn running<T>(&mut self, run: impl FnOnce() -> T) -> T {
        self.is_running = true;
        let done = run();
        self.is_running = false;
        done
    }

    /// Gives back what the request was charged beyond what it costs.
    pub(crate) fn settle(&mut self, outcome: Outcome<'_>) {
        let Some(settle) = self.settle.take() else { return };
        let charged = self.decision.cost();
        let surplus = charged.units().saturating_sub(settle(outcome, charged).units());
        if surplus > 0 {
            give_back(&self.limiter, &self.key, &self.decision, Cost::new(surplus));
        }
    }
}

/// Gives back a part of what a decision spent, without keeping anybody waiting.
pub(crate) fn give_back(limiter: &Limiter, key: &Key, decision: &Decision, cost: Cost) {
    let (limiter, key, decision) = (limiter.clone(), key.clone(), decision.clone());
    let is_in_process = limiter.is_in_process();
    let refund = async move {
        if let Err(error) = limiter.refund_decision(key, &decision, cost).await {
            tracing::debug!(%error, "a refund was lost");
        }
    };
    if is_in_process {
        // Done with the first poll.
        let _ = pin!(refund).poll(&mut Context::from_waker(Waker::noop()));
    } else if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(refund);
    } else {
        tracing::debug!("a refund was lost: a request was dropped outside of the runtime");
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.settle(if self.is_running { Outcome::Panicked } else { Outcome::Abandoned });
    }
}
