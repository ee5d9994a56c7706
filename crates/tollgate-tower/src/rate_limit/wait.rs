//! Requests that wait for quota instead of being denied.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    Costs, Decision, Error, Key, Limiter, PolicySet,
    reservation::Reservation,
    store::{CheckFuture, StoreFuture},
};

use crate::{
    charge::{in_background, refund},
    metrics,
};

/// Checks the limiter, and waits for up to `max_wait` when the quota is spent.
pub(crate) fn check_or_wait(limiter: &Limiter, key: Key, costs: impl Into<Costs>, max_wait: Duration) -> CheckFuture {
    let (limiter, costs) = (limiter.clone(), costs.into());
    StoreFuture::pending(async move {
        let _waiting = WaitingGauge::new();
        limiter.check(key).cost(costs).wait(max_wait).await
    })
}

/// Returns whether one of the policies is a queue, so that admitted requests have to wait in it.
pub(crate) fn has_queue(policies: &PolicySet) -> bool {
    policies.iter().any(|policy| policy.algorithm().is_queue())
}

/// Checks a limiter that may have a queue, and waits until the request leaves the queue.
pub fn check_and_queue(limiter: &Limiter, key: Key, costs: impl Into<Costs>) -> CheckFuture {
    match limiter.check_key(&key).cost(costs).into_future().into_ready() {
        Ok(Ok(decision)) if !decision.delay().is_zero() => {
            StoreFuture::pending(leave_queue(limiter.clone(), key, decision))
        }
        Ok(result) => StoreFuture::ready(result),
        Err(pending) => {
            let limiter = limiter.clone();
            StoreFuture::pending(async move { leave_queue(limiter, key, pending.await?).await })
        }
    }
}

async fn leave_queue(limiter: Limiter, key: Key, decision: Decision) -> Result<Decision, Error> {
    let delay = decision.delay();
    if delay.is_zero() {
        return Ok(decision);
    }
    let _waiting = WaitingGauge::new();
    let slot = QueueSlot { limiter, key, decision: Some(decision.clone()) };
    sleep(delay).await;
    slot.use_up();
    Ok(decision)
}

/// Waits until a request whose estimate is reserved leaves its queue. Refunds the estimate when it is dropped before.
pub(crate) async fn leave_queue_reserved(reservation: Reservation, is_in_process: bool) -> Result<Reservation, Error> {
    let delay = reservation.decision().delay();
    if delay.is_zero() {
        return Ok(reservation);
    }
    let _waiting = WaitingGauge::new();
    let mut slot = ReservedSlot { reservation: Some(reservation), is_in_process };
    sleep(delay).await;
    Ok(slot.reservation.take().expect("the reservation is taken once"))
}

/// Holds the reservation of a queued request. Cancels it when the request is cancelled before it leaves the queue.
struct ReservedSlot {
    reservation: Option<Reservation>,
    is_in_process: bool,
}

impl Drop for ReservedSlot {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            in_background(self.is_in_process, async move {
                if let Err(error) = reservation.cancel().await {
                    tracing::debug!(%error, "a refund failed");
                }
            });
        }
    }
}

/// Waits for `delay`, and refunds the units of the decisions when it is dropped before its end.
pub(crate) async fn sit_out(delay: Duration, decisions: Vec<(Limiter, Key, Decision)>) {
    let _waiting = WaitingGauge::new();
    let slot = |(limiter, key, decision)| QueueSlot { limiter, key, decision: Some(decision) };
    let slots: Vec<_> = decisions.into_iter().map(slot).collect();
    sleep(delay).await;
    slots.into_iter().for_each(QueueSlot::use_up);
}

/// Holds the units of a queued request. Refunds them when the request is cancelled before it leaves the queue.
struct QueueSlot {
    limiter: Limiter,
    key: Key,
    decision: Option<Decision>,
}

impl QueueSlot {
    fn use_up(mut self) {
        self.decision = None;
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        if let Some(decision) = &self.decision {
            refund(&self.limiter, &self.key, decision, decision.cost().into());
        }
    }
}

/// Counts one waiting request in the metric `tollgate_waiting` until it is dropped.
struct WaitingGauge;

impl WaitingGauge {
    fn new() -> Self {
        metrics::add_waiting(1.0);
        Self
    }
}

impl Drop for WaitingGauge {
    fn drop(&mut self) {
        metrics::add_waiting(-1.0);
    }
}
