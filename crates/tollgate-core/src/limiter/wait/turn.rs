//! The turn of an admitted request: the time until it has left its queues. Whoever waits for a queue
//! sleeps here.
//! How a caller waits for units, and gets its place in a queue, is in `wait/mod.rs`.

use std::{borrow::Cow, time::Duration};

use tokio::{runtime::Handle, time::sleep};
use tollgate_model::raw::DecisionParts;

use crate::{
    Decision, Key, Limiter,
    limiter::metrics::WaitingGauge,
    store::{Check, CheckFuture, Deadline, StoreFuture, answer_by},
};

/// Waits until an admitted request has left its queues, and returns what it holds. When the future
/// is dropped before, `give_back` gets what it holds.
///
/// Use it in a middleware that lets several limiters decide about one request: the `delay` is the
/// longest one of their decisions. For one limiter there is
/// [`CheckBuilder::queued`](super::super::CheckBuilder::queued).
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tollgate::Error> {
/// use std::{cell::Cell, time::Duration};
/// use tollgate::limiter::leave_queues;
///
/// let start = tokio::time::Instant::now();
/// assert_eq!(leave_queues(Duration::from_secs(3), "a place", drop).await, "a place");
/// assert_eq!(start.elapsed(), Duration::from_secs(3));
///
/// let returned = Cell::new(false);
/// let turn = leave_queues(Duration::from_secs(3), (), |()| returned.set(true));
/// assert!(tokio::time::timeout(Duration::from_secs(1), turn).await.is_err());
/// assert!(returned.get());
/// # Ok(()) }
/// ```
///
/// # Panics
///
/// Panics outside of a tokio runtime with timers, unless the delay is zero.
pub async fn leave_queues<T>(delay: Duration, held: T, give_back: impl FnOnce(T)) -> T {
    let mut place = HeldPlace(Some((held, give_back)));
    if !delay.is_zero() {
        let _waiting = WaitingGauge::new();
        sleep(delay).await;
    }
    place.0.take().expect("what is held is taken once").0
}

/// What a request in a queue holds, and how it is given back.
struct HeldPlace<T, F: FnOnce(T)>(Option<(T, F)>);

impl<T, F: FnOnce(T)> Drop for HeldPlace<T, F> {
    fn drop(&mut self) {
        if let Some((held, give_back)) = self.0.take() {
            give_back(held);
        }
    }
}

/// Lets the request of a check leave its queues. One that need not wait costs no allocation.
pub(in crate::limiter) fn queued(
    limiter: &Limiter,
    key: Cow<'_, Key>,
    check: CheckFuture,
) -> CheckFuture {
    let check = match check.into_ready() {
        Ok(Ok(decision)) if !decision.delay().is_zero() => StoreFuture::ready(Ok(decision)),
        Ok(result) => return StoreFuture::ready(result),
        Err(pending) => pending,
    };
    let (limiter, key) = (limiter.clone(), key.into_owned());
    StoreFuture::pending(async move {
        let decision = check.await?;
        Ok(leave(&limiter, &key, decision).await)
    })
}

/// Lets an admitted request leave its queues. It is refunded when it is dropped in one of them.
pub(super) async fn leave(limiter: &Limiter, key: &Key, decision: Decision) -> Decision {
    let give_back = |decision: Decision| refund(limiter, key, &decision);
    leave_queues(decision.delay(), decision, give_back).await
}

/// Refunds what the decision spent. A store in this process is refunded at once. For any other
/// store a task sends the refund, so that the caller does not have to wait.
pub(super) fn refund(limiter: &Limiter, key: &Key, decision: &Decision) {
    if decision.is_denied() {
        return;
    }
    let deadline = Deadline::after(limiter.timeout());
    let check = Check::of(decision.policies(), key, decision.charge()).with_deadline(deadline);
    if decision.is_degraded() {
        return limiter.inner.fallback.refund(check, decision);
    }
    let (Err(refund), Ok(runtime)) = (
        limiter.store().refund(check, Some(decision)).into_ready(),
        Handle::try_current(),
    ) else {
        return;
    };
    runtime.spawn(async move {
        if answer_by(Some(deadline), refund).await.is_err() {
            tracing::debug!("the cost of a cancelled request could not be refunded");
        }
    });
}
