use std::{
    convert::Infallible,
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tollgate::{ConcurrencyLimiter, Lost, OnLoss, Permit};

use crate::body::{BodyEnd, BodyGuard};

/// Holds the permit of a request. Dropping it gives the permit back, once its [`Watch`] is dropped too.
pub(super) enum HeldPermit {
    Own { _permit: Permit },
    Watched { _permit: Arc<Permit> },
}

/// Waits for the loss of a permit.
pub(super) struct Watch(Pin<Box<dyn Future<Output = Lost> + Send>>);

/// Holds a permit. It is watched if its loss cancels the request.
pub(super) fn hold(limiter: &ConcurrencyLimiter, permit: Permit) -> (HeldPermit, Option<Watch>) {
    if limiter.policy().loss() != OnLoss::Cancel {
        return (HeldPermit::Own { _permit: permit }, None);
    }
    let permit = Arc::new(permit);
    let watched = Arc::clone(&permit);
    let lost = async move {
        match watched.run(pending::<Infallible>()).await {
            Ok(never) => match never {},
            Err(lost) => lost,
        }
    };
    (HeldPermit::Watched { _permit: permit }, Some(Watch(Box::pin(lost))))
}

impl Watch {
    /// Returns the loss once the permit is lost. It must not be polled again then.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        self.0.as_mut().poll(cx)
    }
}

impl BodyGuard for HeldPermit {
    fn on_end(&mut self, _: BodyEnd) {}
}
