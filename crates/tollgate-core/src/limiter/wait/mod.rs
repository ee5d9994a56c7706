//! Waiting for a quota instead of being denied. The ceilings of such a check refuse a caller whose
//! turn would come too late.
//! The order of callers in this process is kept in `queue.rs`. The turn in a leaky bucket is
//! computed by the store.

pub(super) mod queue;
mod turn;

use std::{future::pending, time::Duration};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};
use tollgate_model::{
    Ceiling,
    raw::{CeilingParts, Charge, CostsParts, PolicyParts, PolicySetParts},
};

use crate::{
    Algorithm, Cost, Costs, Decision, Error, Key, Limiter, Policy, PolicySet,
    clock::micros,
    limiter::{is_for_store, metrics::WaitingGauge},
    runtime,
    store::{Check, CheckFuture},
};
use queue::QueuedDenial;
pub use turn::leave_queues;
pub(super) use turn::queued;

/// Checks, and waits for up to `max_wait` until the units are available: see
/// [`CheckBuilder::wait`](super::CheckBuilder::wait).
pub(super) async fn check_or_wait(
    limiter: Limiter,
    key: Key,
    costs: Costs,
    tag: Box<[u8]>,
    max_wait: Duration,
) -> Result<Decision, Error> {
    runtime::current()?;
    let in_force = limiter.in_force(&key);
    let current = in_force.as_ref().unwrap_or(&limiter);
    let policies = current.policies();
    let charge = current.rank(&key, &costs, costs.charge(policies)?)?;
    let check = Check::of(policies, &key, charge.borrow()).with_tag(&tag);
    if let Err(unasked) = is_for_store(check) {
        return current.inner.answer_at_once(check, unasked).await;
    }
    let deadline = Instant::now().checked_add(max_wait);
    let waiting = WaitingCheck {
        limiter: &limiter,
        key,
        charge,
        tag,
        max_wait,
        deadline,
    };
    let waits = WaitingGauge::new();
    let decision = waiting.admit().await?;
    drop(waits);
    waiting.decided(&decision);
    if decision.delay().is_zero() {
        Ok(decision)
    } else {
        // A caller that waits for its turn counts as one that waits for units.
        let _waits = limiter.wait_queues().waiting.count();
        Ok(turn::leave(&limiter, &waiting.key, decision).await)
    }
}

struct WaitingCheck<'a> {
    limiter: &'a Limiter,
    key: Key,
    charge: Charge,
    tag: Box<[u8]>,
    max_wait: Duration,
    /// `None` when the deadline is later than an [`Instant`] can be.
    deadline: Option<Instant>,
}

impl WaitingCheck<'_> {
    /// Checks until the request is admitted. Returns a denial when no time is left.
    async fn admit(&self) -> Result<Decision, Error> {
        let (queues, policies) = (self.limiter.wait_queues(), self.limiter.policies());
        let mut denial = None;
        if !queues.has(&self.key, policies) {
            // A caller beyond the most that may wait is admitted only if it need not wait.
            let left = if queues.waiting.is_full() {
                Duration::ZERO
            } else {
                self.give_way().await
            };
            match self.retry(self.check(left).await?) {
                Ok(denied) => denial = Some(denied),
                Err(decision) => return Ok(decision),
            }
        }
        let ticket = match queues.join(&self.key, policies, self.deadline) {
            Ok(ticket) => ticket,
            Err(last_denial) => {
                return self
                    .deny(denial.or(last_denial.map(|denial| *denial)))
                    .await;
            }
        };
        let Some(_front) = ticket.queue.front(self.deadline).await else {
            return self.deny(ticket.last_denial().or(denial)).await;
        };
        loop {
            if let Some(denial) = denial {
                let retry_at = denial.retry_at;
                ticket.set_last_denial(denial);
                sleep_until(retry_at).await;
            }
            match self.retry(self.check(self.time_left()).await?) {
                Ok(denied) => denial = Some(denied),
                Err(decision) => return Ok(decision),
            }
        }
    }

    /// Returns the denial of a caller that cannot wait. A known denial is returned without a check,
    /// because a check could admit this caller before those in the queue.
    async fn deny(&self, denial: Option<QueuedDenial>) -> Result<Decision, Error> {
        match denial {
            Some(denial) => Ok(denial.decision),
            None => self.check(self.time_left()).await,
        }
    }

    fn time_left(&self) -> Duration {
        self.deadline.map_or(self.max_wait, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        })
    }

    /// Lets the callers of other processes come first, if it is their turn to get a place, and
    /// returns the time that is left.
    async fn give_way(&self) -> Duration {
        let now = Instant::now();
        let pause = match self.limiter.is_in_process() {
            true => Duration::ZERO,
            false => self
                .limiter
                .wait_queues()
                .contests
                .pause(&self.key, self.max_wait, now),
        };
        if pause.is_zero() {
            return self.max_wait;
        }
        sleep_until(now + pause).await;
        self.time_left()
    }

    /// Passes the decision to the contest for places.
    fn decided(&self, decision: &Decision) {
        if !self.limiter.is_in_process() {
            self.limiter
                .wait_queues()
                .contests
                .decided(&self.key, decision, Instant::now());
        }
    }

    /// Checks once, for a turn within `left`. A caller that is cancelled before the decision
    /// arrives gets a refund.
    async fn check(&self, left: Duration) -> Result<Decision, Error> {
        // An exception may begin or end while a caller waits.
        let in_force = self.limiter.in_force(&self.key);
        let policies = in_force.as_ref().unwrap_or(self.limiter).policies();
        let charge = waiting(policies, &self.charge, left);
        let check =
            self.limiter
                .inner
                .check_within(policies, &self.key, charge.borrow(), &self.tag, left);
        let mut guard = CheckGuard {
            limiter: self.limiter,
            key: &self.key,
            check: Some(check),
        };
        let decision = match &mut guard.check {
            Some(check) => check.await,
            None => pending().await,
        };
        guard.check = None;
        decision
    }

    /// Returns a denial after which another attempt can succeed in time. Any other decision is the
    /// error.
    fn retry(&self, decision: Decision) -> Result<QueuedDenial, Decision> {
        let denial = QueuedDenial::of(decision, Instant::now())?;
        match self
            .deadline
            .is_none_or(|deadline| denial.turn_at <= deadline)
        {
            true => Ok(denial),
            false => Err(denial.decision),
        }
    }
}

/// Refunds a check whose caller is cancelled before the decision arrives.
struct CheckGuard<'a> {
    limiter: &'a Limiter,
    key: &'a Key,
    check: Option<CheckFuture>,
}

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        let (Some(check), Ok(runtime)) = (self.check.take(), Handle::try_current()) else {
            return;
        };
        let (limiter, key) = (self.limiter.clone(), self.key.clone());
        runtime.spawn(async move {
            if let Ok(decision) = check.await {
                turn::refund(&limiter, &key, &decision);
            }
        });
    }
}

/// Returns the charge of a request that waits for `max_wait` at most, under the ceilings that
/// follow from it.
///
/// A queue takes the request when all that is in it leaves in time. A bucket goes into debt for it
/// when the debt is paid in time, if it [can](can_owe). A request of a priority goes into no debt:
/// it would take the share of others.
fn waiting(policies: &PolicySet, charge: &Charge, max_wait: Duration) -> Charge {
    let owes = !charge.borrow().is_capped() && can_owe(policies);
    under(policies, charge, max_wait, |algorithm| {
        owes && algorithm.has_burst()
    })
}

/// Returns the charge of a request that waits for its turn in a queue for `max_wait` at most, and
/// in no debt.
pub(super) fn queueing(policies: &PolicySet, charge: &Charge, max_wait: Duration) -> Charge {
    under(policies, charge, max_wait, |_| false)
}

fn under(
    policies: &PolicySet,
    charge: &Charge,
    max_wait: Duration,
    owes: impl Fn(Algorithm) -> bool,
) -> Charge {
    let (asked, wait_us) = (charge.borrow(), micros(max_wait));
    let ceiling = |at: usize, policy: &Policy| {
        let (algorithm, quota) = (policy.algorithm(), policy.quota_ref());
        let in_time = Ceiling::units_of(asked.of(at).units()).within_us(wait_us);
        match asked.ceiling(at) {
            // The place in the queue is within the share of the priority, and within the wait.
            Some(share) if algorithm.is_queue() => share.lower_of(in_time, quota),
            Some(share) => share,
            None if algorithm.is_queue() => in_time,
            None if owes(algorithm) => Ceiling::units_of(quota.burst()).within_us(wait_us),
            None => Ceiling::units_of(quota.burst()),
        }
    };
    let ceilings = policies
        .iter()
        .enumerate()
        .map(|(at, policy)| ceiling(at, policy));
    let is_needed = |policy: &Policy| policy.algorithm().is_queue() || owes(policy.algorithm());
    // The cost of a cascade says nothing about the policies beside it.
    let is_asked = asked.cost > Cost::ZERO || asked.cascade().is_some();
    match is_asked && policies.iter().any(is_needed) {
        true => charge.under(ceilings),
        false => charge.clone(),
    }
}

/// Returns whether a request may go into the debt of all policies together.
///
/// The units of a debt are charged now and used later. Several buckets have to give them out in one
/// order and one by one, so that each of them keeps its bound. A window counts units when they are
/// charged, and units that were leased are spent without a look at the debt.
fn can_owe(policies: &PolicySet) -> bool {
    let is_alone = policies.len() == 1;
    let reach = policies.shared()[0].reach();
    !policies.is_leased()
        && policies.iter().all(|policy| {
            let algorithm = policy.algorithm();
            let owes = algorithm.has_burst() && !algorithm.is_queue();
            owes && (is_alone || algorithm.is_continuous() && policy.reach() == reach)
        })
}

#[cfg(test)]
mod demand_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;
