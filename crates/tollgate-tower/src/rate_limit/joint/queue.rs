//! Waits until an admitted request leaves the queues of its limits.

use tollgate::{Error, StoreFuture};

use super::{decider::JointFuture, decision::JointDecision};
use crate::rate_limit::wait;

/// Returns the decision when the request has left all queues.
pub(crate) fn after_queues(decision: JointFuture) -> JointFuture {
    match decision.into_ready() {
        Ok(Ok(Some(joint))) if !joint.delay().is_zero() => StoreFuture::pending(leave(joint)),
        Ok(result) => StoreFuture::ready(result),
        Err(pending) => StoreFuture::pending(async move {
            match pending.await? {
                Some(joint) => leave(joint).await,
                None => Ok(None),
            }
        }),
    }
}

async fn leave(joint: JointDecision) -> Result<Option<JointDecision>, Error> {
    let delay = joint.delay();
    if !delay.is_zero() {
        let slots = joint.parts().map(|part| (part.limiter.clone(), part.key.clone(), part.decision.clone()));
        wait::sit_out(delay, slots.collect()).await;
    }
    Ok(Some(joint))
}
