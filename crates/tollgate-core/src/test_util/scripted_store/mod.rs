//! A store that answers as a test has written down, and records what it was asked.
//! What an answer is stands in `answer.rs`; outages on command are in `faulty_store/`.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tollgate_model::Entry;

use super::answer::Answer;
use crate::{
    Cost, Decision, Key, Store,
    lock::Lock,
    store::{Check, CheckFuture, ReservationId, Settlement, StoreFuture},
};

/// Answers checks by a script, and records them.
///
/// Use it to test what the service does with a decision: with a denial, with a wait, with an
/// outage. Use a [`MemoryStore`](crate::MemoryStore) to test the limits themselves.
///
/// Each check takes the next answer of the script. The last answer is repeated. Callers that
/// [wait](crate::limiter::CheckBuilder::wait) check again, and take further answers. A reservation
/// takes an answer as a check does, and a commit settles it. Refunds and resets change nothing. The
/// store has no [permits](crate::permits::ConcurrencyLimiter).
///
/// If the script contains a failure, the store counts as one outside of the process, so the
/// deadline and the [`Outage`](crate::Outage) of the limiter apply. Otherwise it is [in the
/// process](crate::Limiter::is_in_process).
///
/// Clones share the script and the record. Give one to the limiter, and keep one to read the
/// record.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use std::time::Duration;
/// use tollgate::{Cost, ErrorKind, Limiter, Policy, Quota, test_util::{Answer, ScriptedStore}};
///
/// let store = ScriptedStore::new([
///     Answer::allow(),
///     Answer::deny(Duration::from_secs(30)),
///     Answer::fail(ErrorKind::ConnectionLost),
/// ]);
/// let limiter = Limiter::new(store.clone(), Policy::token_bucket("api", Quota::per_second(10)));
///
/// assert!(limiter.check("acme").await?.is_allowed());
/// assert_eq!(limiter.check("acme").await?.retry_after(), Some(Duration::from_secs(30)));
/// let decision = limiter.check("other").cost(Cost::new(5)).await?;
/// assert_eq!(decision.degraded(), Some(ErrorKind::ConnectionLost));
///
/// let checks = store.checks();
/// assert_eq!(checks.len(), 3);
/// assert_eq!((checks[2].key(), checks[2].cost()), (&"other".into(), Cost::new(5)));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ScriptedStore(Arc<ScriptedInner>);

struct ScriptedInner {
    is_in_process: bool,
    progress: Lock<Progress>,
}

struct Progress {
    /// The answers that are left. The last one stays.
    answers: VecDeque<Answer>,
    checks: Vec<CheckRecord>,
}

/// One check that a [`ScriptedStore`] has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRecord {
    key: Key,
    cost: Cost,
}

impl CheckRecord {
    /// Returns the key that was checked.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the cost of the check: zero for a peek, and the greatest cost if the policies have
    /// costs of their own.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }
}

impl ScriptedStore {
    /// Creates a store that gives these answers in turn, and then repeats the last one.
    ///
    /// # Panics
    ///
    /// When there is no answer.
    #[must_use]
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers: VecDeque<_> = answers.into_iter().collect();
        assert!(
            !answers.is_empty(),
            "a script must have at least one answer"
        );
        let is_in_process = answers.iter().all(Answer::is_decision);
        let progress = Lock::new(Progress {
            answers,
            checks: Vec::new(),
        });
        Self(Arc::new(ScriptedInner {
            is_in_process,
            progress,
        }))
    }

    /// Creates a store that allows every request.
    #[must_use]
    pub fn allow() -> Self {
        Self::new([Answer::allow()])
    }

    /// Creates a store that denies every request, with this wait.
    #[must_use]
    pub fn deny(retry_after: Duration) -> Self {
        Self::new([Answer::deny(retry_after)])
    }

    /// Returns the checks so far, in their order. Reservations are checks, and so are peeks.
    #[must_use]
    pub fn checks(&self) -> Vec<CheckRecord> {
        self.0.progress.lock().checks.clone()
    }
}

impl Store for ScriptedStore {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        let mut progress = self.0.progress.lock();
        progress.checks.push(CheckRecord {
            key: check.key.clone(),
            cost: check.cost,
        });
        let next = if progress.answers.len() > 1 {
            progress.answers.pop_front()
        } else {
            None
        };
        let answer = next
            .or_else(|| progress.answers.front().cloned())
            .expect("a script has at least one answer");
        drop(progress);
        answer.decide(check)
    }

    fn look(&self, check: Check<'_>) -> CheckFuture {
        self.check(check)
    }

    fn refund(&self, _check: Check<'_>, _decision: Option<&Decision>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn reset(&self, _check: Check<'_>) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    fn entries(&self, _check: Check<'_>, _limit: usize) -> StoreFuture<Vec<Entry>> {
        StoreFuture::ready(Ok(Vec::new()))
    }

    fn reserve(
        &self,
        check: Check<'_>,
        _id: &ReservationId,
        _time_to_live: Duration,
    ) -> CheckFuture {
        self.check(check)
    }

    fn commit(&self, _check: Check<'_>, _id: &ReservationId) -> StoreFuture<Settlement> {
        StoreFuture::ready(Ok(Settlement::Settled))
    }

    fn is_in_process(&self) -> bool {
        self.0.is_in_process
    }
}

crate::debug_fields! { ScriptedStore: answers = .0.progress.lock().answers, .. }

#[cfg(test)]
mod tests;
