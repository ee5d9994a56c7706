//! Waiting for one's turn.

mod line;

use std::{future::pending, time::Duration};

use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use crate::{Algorithm, Check, CheckFuture, Cost, Decision, Error, Key, Limiter};
use line::Denied;
pub(crate) use line::Lines;

impl Limiter {
    /// Spends one unit as soon as it is there, and waits for it no longer than `max_wait`.
    ///
    /// With a [queue](crate::Algorithm::LeakyBucket) among the policies the place in it is taken
    /// at once, and the wait is the decision's [`delay`](Decision::delay): first come, first
    /// served, over all processes. With the others, a denied caller comes back when the denial
    /// said so; callers of this limiter, its clones among them, do so one after the other for each
    /// key, in the order they came.
    ///
    /// When the wait would be too long, or [too many](crate::LimiterBuilder::max_waiting) wait, the
    /// denial is returned as soon as that is known, and nothing stays spent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let mails = Limiter::new(
    ///     MemoryStore::new(),
    ///     Policy::leaky_bucket("mails", Quota::per_second(10).with_burst(100)),
    /// );
    /// for _ in 0..3 {
    ///     let decision = mails.until_ready("smtp", Duration::from_secs(1)).await?;
    ///     assert!(decision.is_allowed());
    ///     // Now send; 100 ms after the one before.
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    ///
    /// # Cancellation
    ///
    /// A caller that drops the future before its turn gives its place back, and what was spent for
    /// it. Stores outside the process are told by a task on the caller's runtime.
    pub async fn until_ready(&self, key: impl Into<Key>, max_wait: Duration) -> Result<Decision, Error> {
        self.until_ready_cost(key, Cost::ONE, max_wait).await
    }

    /// Spends `cost` units as soon as they are there, all at once, as
    /// [`until_ready`](Self::until_ready).
    ///
    /// # Errors
    ///
    /// As [`check_cost`](Self::check_cost).
    pub async fn until_ready_cost(
        &self,
        key: impl Into<Key>,
        cost: Cost,
        max_wait: Duration,
    ) -> Result<Decision, Error> {
        let wait = Wait { limiter: self, key: key.into(), cost, deadline: Instant::now().checked_add(max_wait) };
        let decision = wait.admission().await?;
        if decision.is_denied() { Ok(decision) } else { Ok(wait.turn(decision).await) }
    }
}

struct Wait<'a> {
    limiter: &'a Limiter,
    key: Key,
    cost: Cost,
    /// None when it lies beyond what the clock can say.
    deadline: Option<Instant>,
}

impl Wait<'_> {
    /// An admission, or the denial after which there is no time left.
    async fn admission(&self) -> Result<Decision, Error> {
        let lines = self.limiter.lines();
        let mut denied = None;
        if !lines.has(&self.key) {
            let decision = self.ask().await?;
            match self.again_at(&decision) {
                Some(ready_at) => denied = Some(Denied { decision, ready_at }),
                None => return Ok(decision),
            }
        }
        let place = match lines.join(&self.key, self.deadline) {
            Ok(place) => place,
            Err(told) => return self.give_up(denied.or(told.map(|told| *told))).await,
        };
        let turn = match self.deadline {
            Some(deadline) => match timeout_at(deadline, place.turn.lock()).await {
                Ok(turn) => turn,
                Err(_) => return self.give_up(place.told().or(denied)).await,
            },
            None => place.turn.lock().await,
        };
        loop {
            if let Some(denied) = denied {
                let ready_at = denied.ready_at;
                place.tell(denied);
                sleep_until(ready_at).await;
            }
            let decision = self.ask().await?;
            match self.again_at(&decision) {
                Some(ready_at) => denied = Some(Denied { decision, ready_at }),
                None => {
                    drop(turn);
                    return Ok(decision);
                }
            }
        }
    }

    /// The denial of one who cannot wait, without passing those who do.
    async fn give_up(&self, denied: Option<Denied>) -> Result<Decision, Error> {
        match denied {
            Some(denied) => Ok(denied.decision),
            None => self.ask().await,
        }
    }

    /// Asks the store. If the caller goes before the answer comes, what was spent is given back.
    async fn ask(&self) -> Result<Decision, Error> {
        let answer = self.limiter.check_cost(&self.key, self.cost);
        let mut asked = Asked { limiter: self.limiter, key: &self.key, answer: Some(answer) };
        let decision = match &mut asked.answer {
            Some(answer) => answer.await,
            None => pending().await,
        };
        asked.answer = None;
        decision
    }

    /// When to ask again after a denial; not at all if it is none, or leaves no time.
    fn again_at(&self, decision: &Decision) -> Option<Instant> {
        let retry = decision.retry_after()?;
        // Whoever enters a full queue leaves it when all is drained that stands in it now.
        let queues = decision.states().filter(|state| state.policy().algorithm() == Algorithm::LeakyBucket);
        let needed = queues.filter(|state| state.is_exceeded()).map(|state| state.reset_after()).fold(retry, Ord::max);
        let now = Instant::now();
        let last = now.checked_add(needed)?;
        (self.deadline.is_none_or(|deadline| last <= deadline)).then(|| now + retry)
    }

    /// Waits for the turn of an admitted request, or gives its place back.
    async fn turn(&self, decision: Decision) -> Decision {
        let delay = decision.delay();
        if delay.is_zero() {
            return decision;
        }
        let now = Instant::now();
        let at = now.checked_add(delay);
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
        if let Some(left) = left.filter(|left| *left < delay) {
            if let Some(told) = give_back(self.limiter, &self.key, &decision) {
                let _ = told.await;
            }
            let look = self.limiter.check_key(&self.key, Cost::ZERO).await.unwrap_or(decision);
            return look.turned_away(self.cost, left);
        }
        let place = Place { limiter: self.limiter, key: &self.key, decision: Some(decision.clone()) };
        until(at).await;
        place.keep();
        decision
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// A question that is on its way.
struct Asked<'a> {
    limiter: &'a Limiter,
    key: &'a Key,
    answer: Option<CheckFuture>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let (Some(answer), Ok(runtime)) = (self.answer.take(), Handle::try_current()) else {
            return;
        };
        let (limiter, key) = (self.limiter.clone(), self.key.clone());
        runtime.spawn(async move {
            if let Ok(decision) = answer.await {
                give_back(&limiter, &key, &decision);
            }
        });
    }
}

/// What an admitted request holds before its turn; whoever drops it gives it back.
struct Place<'a> {
    limiter: &'a Limiter,
    key: &'a Key,
    decision: Option<Decision>,
}

impl Place<'_> {
    fn keep(mut self) {
        self.decision = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(decision) = &self.decision {
            give_back(self.limiter, self.key, decision);
        }
    }
}

/// Gives back what the decision spent: at once in this process, else by a task, so that nobody has
/// to stay for it.
fn give_back(limiter: &Limiter, key: &Key, decision: &Decision) -> Option<JoinHandle<()>> {
    if decision.is_denied() || decision.is_degraded() {
        return None;
    }
    let check = Check::new(limiter.policies(), key, decision.cost());
    let answer = limiter.store().refund(check, Some(decision)).into_ready().err()?;
    let deadline = limiter.timeout();
    let told = async move {
        if !matches!(timeout(deadline, answer).await, Ok(Ok(()))) {
            tracing::debug!("a place in a queue was left and could not be given back");
        }
    };
    Some(Handle::try_current().ok()?.spawn(told))
}

#[cfg(test)]
mod tests;
