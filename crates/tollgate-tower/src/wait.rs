//! Requests that wait for their turn instead of being denied.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Algorithm, CheckFuture, Cost, Decision, Error, Key, Limiter, StoreFuture};

use crate::{metrics, settle::give_back};

/// The decision that [`Limiter::check_cost`] would make when it is the request's turn, if that
/// comes within `max`.
pub(crate) fn until_ready(limiter: &Limiter, key: Key, cost: Cost, max: Duration) -> CheckFuture {
    let limiter = limiter.clone();
    StoreFuture::pending(async move {
        let _held = Held::new();
        limiter.until_ready_cost(key, cost, max).await
    })
}

/// Whether an admitted request has to wait for its turn in a queue.
pub(crate) fn has_queue(limiter: &Limiter) -> bool {
    limiter.policies().iter().any(|policy| policy.algorithm() == Algorithm::LeakyBucket)
}

/// The decision of a limiter that has a queue, when the queue lets the request go.
pub(crate) fn through_queue(limiter: &Limiter, key: Key, cost: Cost) -> CheckFuture {
    match limiter.check_cost(key.clone(), cost).into_ready() {
        Ok(Ok(decision)) if !decision.delay().is_zero() => StoreFuture::pending(turn(limiter.clone(), key, decision)),
        Ok(answer) => StoreFuture::ready(answer),
        Err(pending) => {
            let limiter = limiter.clone();
            StoreFuture::pending(async move { turn(limiter, key, pending.await?).await })
        }
    }
}

async fn turn(limiter: Limiter, key: Key, decision: Decision) -> Result<Decision, Error> {
    let delay = decision.delay();
    if delay.is_zero() {
        return Ok(decision);
    }
    let _held = Held::new();
    let place = Place { limiter, key, decision: Some(decision.clone()) };
    sleep(delay).await;
    place.keep();
    Ok(decision)
}

/// What a request holds until its turn. Who goes away gives it back.
struct Place {
    limiter: Limiter,
    key: Key,
    decision: Option<Decision>,
}

impl Place {
    fn keep(mut self) {
        self.decision = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(decision) = &self.decision {
            give_back(&self.limiter, &self.key, decision, decision.cost());
        }
    }
}

/// One more that is held.
struct Held;

impl Held {
    fn new() -> Self {
        metrics::waiting(1.0);
        Self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        metrics::waiting(-1.0);
    }
}
