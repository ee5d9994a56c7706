//! Waiting for a quota instead of being denied.

pub(crate) mod ceilings;
mod contest;
pub(crate) mod queue;

use std::{future::pending, time::Duration};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    Cost, Costs, Decision, Error, Key, Limiter,
    model::cost::Charge,
    runtime,
    store::{Check, CheckFuture, Deadline, answer_by},
};
use queue::Denial;

impl Limiter {
    /// Spends one unit, and waits up to `max_wait` until it is available.
    ///
    /// With a [`LeakyBucket`](crate::Algorithm::LeakyBucket) among the policies, the request enters the queue at once and
    /// waits for the decision's [`delay`](Decision::delay). With token buckets, or one interval bucket, it goes into
    /// debt: its units are charged at once, and it waits until they have accrued. So requests get their turns in the
    /// order of arrival, over all processes, and a plain check takes no unit that somebody waits for. The decision
    /// refuses a request whose turn would come after `max_wait`, and charges nothing.
    ///
    /// A queue holds its burst at most, and a debt is at most seven bursts. A caller that finds no room, and whose
    /// turn can still come in time, waits for room. So does a denied caller with all other policies: windows, logs,
    /// [leased](crate::Policy::leased) policies, an interval bucket beside another policy, and token buckets that meter
    /// different parts of the key or stand beside other algorithms. It waits for the decision's
    /// [`retry_after`](Decision::retry_after) and then tries again. Such callers of this limiter and its clones wait in a
    /// queue, one for each key, and are admitted in the order of arrival. Each process has its own queues, so the
    /// callers of other processes and plain checks may take the units before. Callers of a limiter
    /// [with other policies](Self::with_policies) have a queue of their own.
    ///
    /// The burst of a leaky bucket and `max_wait` both bound the wait: it is at most `burst` times the time of one
    /// unit. Choose the burst so that `burst / amount × period` is the longest wait of any caller or more, and at
    /// least 2.
    ///
    /// Returns the denial without waiting when the turn would come after `max_wait`, or when
    /// [`max_waiting`](crate::LimiterBuilder::max_waiting) callers wait for room already. A denied request is not
    /// charged, and its `retry_after` is the time after which the same call would be admitted. A denial is `Ok`: call
    /// [`into_result`](Decision::into_result) so that `?` ends the work.
    ///
    /// Processes that share a store share the turns of a full queue. A caller that asks while others of its process
    /// are refused asks up to 10 ms later, and never later than a quarter of `max_wait`: a process that got a place
    /// lately lets the others come first.
    ///
    /// Callers sleep on the time of tokio. A test that pauses it gives the store
    /// [`Clock::tokio`](crate::store::Clock::tokio), so that units accrue during the sleep.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let mails = Limiter::new(
    ///     MemoryStore::new(),
    ///     Policy::leaky_bucket("mails", Quota::per_second(10).with_burst(100)),
    /// );
    /// for _ in 0..3 {
    ///     mails.until_ready("smtp", Duration::from_secs(1)).await?.into_result()?;
    ///     // Send one e-mail here. The next one follows 100 ms later.
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`check`](Self::check). [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) outside a tokio runtime,
    /// for every store: the call may have to wait.
    ///
    /// # Cancellation
    ///
    /// Dropping the future leaves the queue and refunds what was spent. For a store outside the
    /// process, a task on the caller's runtime sends the refund. In a leaky bucket, and in a debt, only the last place
    /// can be refunded: the requests behind keep their turns, and the turn of the cancelled request passes unused.
    pub async fn until_ready(&self, key: impl Into<Key>, max_wait: Duration) -> Result<Decision, Error> {
        self.until_ready_cost(key, Cost::ONE, max_wait).await
    }

    /// Spends `costs` at once, and waits up to `max_wait` until all are available: one [`Cost`] for all policies, or
    /// [`Costs`] for each.
    ///
    /// Waiting works as in [`until_ready`](Self::until_ready). The units of a call leave a leaky bucket together, at
    /// its turn: with costs up to c, up to c − 1 units more than the amount leave in a period.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("rows", Quota::per_second(1_000)));
    /// // A cost above the burst can never fit: it is an error, not a wait.
    /// let decision = limiter.until_ready_cost("import", Cost::new(1_000), Duration::from_secs(2)).await?;
    /// assert!(decision.is_allowed());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`check_costs`](Self::check_costs).
    pub async fn until_ready_cost(
        &self,
        key: impl Into<Key>,
        costs: impl Into<Costs>,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        runtime::current()?;
        let charge = costs.into().charge(self.policies())?;
        if self.policies().is_blocked() {
            return self.check_charge(&key.into(), charge.borrow()).await;
        }
        let deadline = Instant::now().checked_add(max_wait);
        let waiter = Waiter { limiter: self, key: key.into(), charge, max_wait, deadline };
        let decision = waiter.admit().await?;
        waiter.decided(&decision);
        if decision.is_denied() { Ok(decision) } else { Ok(waiter.wait_delay(decision).await) }
    }
}

/// A caller that waits.
struct Waiter<'a> {
    limiter: &'a Limiter,
    key: Key,
    charge: Charge,
    max_wait: Duration,
    /// `None` when the deadline is later than an [`Instant`] can be.
    deadline: Option<Instant>,
}

impl Waiter<'_> {
    /// Checks until the request is admitted. Returns a denial when no time is left.
    async fn admit(&self) -> Result<Decision, Error> {
        let (queues, policies) = (self.limiter.wait_queues(), self.limiter.policies());
        let mut denial = None;
        if !queues.has(&self.key, policies) {
            // A caller beyond the most that may wait is admitted only if it need not wait.
            let left = if queues.is_full() { Duration::ZERO } else { self.give_way().await };
            match self.retry(self.check(left).await?) {
                Ok(denied) => denial = Some(denied),
                Err(decision) => return Ok(decision),
            }
        }
        let ticket = match queues.join(&self.key, policies, self.deadline) {
            Ok(ticket) => ticket,
            Err(last_denial) => return self.deny(denial.or(last_denial.map(|denial| *denial))).await,
        };
        let _front = match self.deadline {
            Some(deadline) => match timeout_at(deadline, ticket.front.lock()).await {
                Ok(front) => front,
                Err(_) => return self.deny(ticket.last_denial().or(denial)).await,
            },
            None => ticket.front.lock().await,
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

    /// Returns the denial of a caller that cannot wait. A known denial is returned without a check, because a check
    /// could admit this caller before those in the queue.
    async fn deny(&self, denial: Option<Denial>) -> Result<Decision, Error> {
        match denial {
            Some(denial) => Ok(denial.decision),
            None => self.check(self.time_left()).await,
        }
    }

    fn time_left(&self) -> Duration {
        self.deadline.map_or(self.max_wait, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Lets the callers of other processes come first, if it is their turn to get a place, and returns the time that
    /// is left.
    async fn give_way(&self) -> Duration {
        let now = Instant::now();
        let pause = match self.limiter.is_in_process() {
            true => Duration::ZERO,
            false => self.limiter.wait_queues().contests.pause(&self.key, self.max_wait, now),
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
            self.limiter.wait_queues().contests.decided(&self.key, decision, Instant::now());
        }
    }

    /// Checks once, for a turn within `left`. A caller that is cancelled before the decision arrives gets a refund.
    async fn check(&self, left: Duration) -> Result<Decision, Error> {
        let charge = ceilings::waiting(self.limiter.policies(), &self.charge, left);
        let check = self.limiter.check_charge(&self.key, charge.borrow());
        let mut guard = CheckGuard { limiter: self.limiter, key: &self.key, check: Some(check) };
        let decision = match &mut guard.check {
            Some(check) => check.await,
            None => pending().await,
        };
        guard.check = None;
        decision
    }

    /// Returns a denial after which another attempt can succeed in time. Any other decision is the error.
    fn retry(&self, decision: Decision) -> Result<Denial, Decision> {
        let denial = Denial::of(decision, Instant::now())?;
        match self.deadline.is_none_or(|deadline| denial.turn_at <= deadline) {
            true => Ok(denial),
            false => Err(denial.decision),
        }
    }

    /// Waits for the delay of an admitted request.
    async fn wait_delay(&self, decision: Decision) -> Decision {
        let delay = decision.delay();
        if delay.is_zero() {
            return decision;
        }
        let at = Instant::now().checked_add(delay);
        let _waiting = self.limiter.wait_queues().count();
        let guard = AdmissionGuard { limiter: self.limiter, key: &self.key, decision: Some(decision.clone()) };
        sleep_until_some(at).await;
        guard.disarm();
        decision
    }
}

/// Sleeps until `at`, or for ever when the time is later than an [`Instant`] can be.
async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
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
                refund(&limiter, &key, &decision);
            }
        });
    }
}

/// Refunds an admitted request whose caller is cancelled during the delay.
struct AdmissionGuard<'a> {
    limiter: &'a Limiter,
    key: &'a Key,
    decision: Option<Decision>,
}

impl AdmissionGuard<'_> {
    /// Drops the guard without a refund.
    fn disarm(mut self) {
        self.decision = None;
    }
}

impl Drop for AdmissionGuard<'_> {
    fn drop(&mut self) {
        if let Some(decision) = &self.decision {
            refund(self.limiter, self.key, decision);
        }
    }
}

/// Refunds what the decision spent. A store in this process is refunded at once. For any other store a task sends the
/// refund, so that the caller does not have to wait.
fn refund(limiter: &Limiter, key: &Key, decision: &Decision) {
    if decision.is_denied() || decision.is_degraded() {
        return;
    }
    let deadline = Deadline::after(limiter.timeout());
    let check = Check::of(decision.policies(), key, decision.charge()).with_deadline(deadline);
    let (Err(refund), Ok(runtime)) =
        (limiter.store().refund(check, Some(decision)).into_ready(), Handle::try_current())
    else {
        return;
    };
    runtime.spawn(async move {
        if answer_by(Some(deadline), refund).await.is_err() {
            tracing::debug!("the cost of a cancelled request could not be refunded");
        }
    });
}

#[cfg(test)]
mod demand_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;
