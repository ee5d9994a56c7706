//! Waits: for quota, instead of being denied, or for the turn in a queue.
//! Whether a request waits is decided in `ask.rs`, how long by the core.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{
    Costs, Enforcement, Error, Key, Limiter,
    store::{CheckFuture, StoreFuture},
};

use crate::{
    charge::Charged,
    metrics,
    rate_limit::joint::{JointDecision, JointFuture},
};

/// Checks the limiter, and waits for up to `max_wait` when the quota is spent.
pub(crate) fn check_or_wait(
    limiter: &Limiter,
    key: Key,
    costs: impl Into<Costs>,
    max_wait: Duration,
) -> CheckFuture {
    let (limiter, costs) = (limiter.clone(), costs.into());
    StoreFuture::pending(async move {
        let _waiting = WaitingGauge::new();
        limiter.check(key).cost(costs).wait(max_wait).await
    })
}

/// Checks a limiter that may have a queue, and waits until the request leaves the queue.
pub fn check_and_queue(limiter: &Limiter, key: Key, costs: impl Into<Costs>) -> CheckFuture {
    let check = match limiter
        .check_key(&key)
        .cost(costs)
        .into_future()
        .into_ready()
    {
        Ok(Ok(decision)) if !decision.delay().is_zero() => StoreFuture::ready(Ok(decision)),
        Ok(result) => return StoreFuture::ready(result),
        Err(pending) => pending,
    };
    let limiter = limiter.clone();
    StoreFuture::pending(async move {
        let decision = check.await?;
        let charged = Charged {
            limiter,
            key,
            decision,
        };
        Ok(take_turn(charged.decision.delay(), charged, |charged| {
            charged.refund_all();
        })
        .await
        .decision)
    })
}

/// Returns the decision of several limits when the request has left the queues of those that the
/// layer enforces for it.
pub(super) fn leave_queues(decision: JointFuture, enforcement: Option<Enforcement>) -> JointFuture {
    let enforced = move |joint: Option<JointDecision>| {
        let mut joint = joint?;
        joint.enforce(|key| {
            enforcement
                .as_ref()
                .is_none_or(|enforcement| enforcement.applies_to(key))
        });
        Some(joint)
    };
    match decision.into_ready().map(|result| result.map(&enforced)) {
        Ok(Ok(Some(joint))) if !joint.delay().is_zero() => {
            StoreFuture::pending(take_joint_turn(Some(joint)))
        }
        Ok(result) => StoreFuture::ready(result),
        Err(pending) => {
            StoreFuture::pending(async move { take_joint_turn(enforced(pending.await?)).await })
        }
    }
}

async fn take_joint_turn(joint: Option<JointDecision>) -> Result<Option<JointDecision>, Error> {
    let Some(joint) = joint else { return Ok(None) };
    let give_back = |joint: JointDecision| {
        joint
            .all()
            .iter()
            .for_each(|part| part.charged.refund_all());
    };
    Ok(Some(take_turn(joint.delay(), joint, give_back).await))
}

/// Waits for the turn of a request in its queues. `give_back` returns what the request holds when
/// it is cancelled before.
pub(super) async fn take_turn<T>(delay: Duration, held: T, give_back: impl FnOnce(T)) -> T {
    let mut turn = Turn(Some((held, give_back)));
    if !delay.is_zero() {
        let _waiting = WaitingGauge::new();
        sleep(delay).await;
    }
    turn.0.take().expect("what is held is taken once").0
}

struct Turn<T, F: FnOnce(T)>(Option<(T, F)>);

impl<T, F: FnOnce(T)> Drop for Turn<T, F> {
    fn drop(&mut self) {
        if let Some((held, give_back)) = self.0.take() {
            give_back(held);
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
