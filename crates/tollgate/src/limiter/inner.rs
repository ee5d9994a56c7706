use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    Check, CheckFuture, Cost, Deadline, Decision, Error, ErrorKind, Key, Outage, PolicySet, Store, StoreFuture,
    cost::ChargeRef,
    entry::TAG_BYTES,
    outage::Fallback,
    runtime,
    store::{Guard, PendingCheck},
    wait::queue::WaitQueues,
};

/// The default of [`LimiterBuilder::deadline`](crate::LimiterBuilder::deadline).
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// Checks keys against any policies. Limiters that differ in their policies alone share it.
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) is_in_process: bool,
    pub(super) keeps_deadline: bool,
    pub(crate) timeout: Duration,
    pub(crate) fallback: Fallback,
    pub(super) wait_queues: WaitQueues,
}

impl Inner {
    /// Creates what a limiter without options has.
    pub(crate) fn of(store: Arc<dyn Store>, name: String) -> Self {
        Self {
            is_in_process: store.is_in_process(),
            keeps_deadline: store.keeps_deadline(),
            fallback: Fallback::new(name.into(), Outage::default(), &*store, None),
            store,
            timeout: DEADLINE,
            wait_queues: WaitQueues::new(0),
        }
    }

    pub(super) fn check(
        self: &Arc<Self>,
        policies: &PolicySet,
        key: &Key,
        charge: ChargeRef<'_>,
        tag: &[u8],
    ) -> CheckFuture {
        if tag.len() > TAG_BYTES {
            return self
                .refuse(policies, Error::config(format!("tag must be at most {TAG_BYTES} bytes, got {}", tag.len())));
        }
        if let Err(error) = policies.admits(charge).and_then(|()| policies.reaches(key)) {
            return self.refuse(policies, error);
        }
        let check = Check::of(policies, key, charge).with_tag(tag);
        if self.is_in_process {
            // Returned as it is: a copy would take a good part of the time of the decision.
            let answer = self.store.check(check);
            self.fallback.answered_in_process(policies, key, answer.as_ready());
            return answer;
        }
        self.check_remote(check)
    }

    /// Checks a store outside of the process.
    // Not inlined: a check in the process would pay for the larger stack frame.
    #[inline(never)]
    fn check_remote(self: &Arc<Self>, check: Check<'_>) -> CheckFuture {
        let deadline = Deadline::after(self.timeout);
        let check = check.with_deadline(deadline);
        let mut answer = self.store.check(check);
        match answer.as_ready() {
            Some(Ok(decision)) => self.fallback.decided(decision, || check),
            Some(Err(error)) => return StoreFuture::ready(self.fallback.answer(check, error.clone())),
            None if self.keeps_deadline && answer.holds_check() => answer.guard_with(Arc::clone(self) as _),
            None if self.keeps_deadline => return self.wait(answer, check),
            None => {
                let (timeout, end) = (self.timeout, deadline.instant().map(Instant::from_std));
                let answer = async move {
                    runtime::current()?;
                    within(end, answer).await.unwrap_or_else(|| Err(late(timeout)))
                };
                return self.wait(answer, check);
            }
        }
        answer
    }

    /// Answers a check that is not valid, without the store.
    #[cold]
    pub(super) fn refuse(&self, policies: &PolicySet, error: Error) -> CheckFuture {
        self.fallback.refused(policies, &error);
        StoreFuture::ready(Err(error))
    }

    /// Waits for a store whose answer does not hold the check, and answers for it when it fails.
    fn wait(
        self: &Arc<Self>,
        answer: impl Future<Output = Result<Decision, Error>> + Send + 'static,
        check: Check<'_>,
    ) -> CheckFuture {
        let (inner, policies) = (Arc::clone(self), check.policies.clone());
        let (key, charge, tag) = (check.key.clone(), check.charge().to_owned(), Box::<[u8]>::from(check.tag));
        let deadline = check.deadline;
        StoreFuture::pending(async move {
            let outcome = answer.await;
            let check = Check { deadline, ..Check::of(&policies, &key, charge.borrow()).with_tag(&tag) };
            match outcome {
                Ok(decision) => {
                    inner.fallback.decided(&decision, || check);
                    Ok(decision)
                }
                Err(error) => inner.failed(check, error),
            }
        })
    }

    pub(super) async fn refund(
        &self,
        policies: &PolicySet,
        key: &Key,
        charge: ChargeRef<'_>,
        decision: Option<&Decision>,
    ) -> Result<(), Error> {
        if charge.cost == Cost::ZERO {
            return Ok(());
        }
        policies.reaches(key)?;
        let check = Check::of(policies, key, charge);
        self.within_timeout(self.store.refund(check, decision)).await
    }

    pub(super) async fn within_timeout<T: Unpin>(&self, answer: StoreFuture<T>) -> Result<T, Error> {
        match answer.into_ready() {
            Ok(answer) => answer,
            Err(pending) => {
                runtime::current()?;
                timeout(self.timeout, pending).await.unwrap_or_else(|_| Err(late(self.timeout)))
            }
        }
    }
}

impl Guard<Decision> for Inner {
    fn decided(&self, decision: &Decision, answer: &dyn PendingCheck<Decision>) {
        self.fallback.decided(decision, || answer.check());
    }

    fn failed(&self, check: Check<'_>, error: Error) -> Result<Decision, Error> {
        self.fallback.answer(check, error)
    }
}

/// Waits until `end`. Without an end, waits as long as the answer takes.
async fn within<T>(end: Option<Instant>, answer: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => timeout_at(end, answer).await.ok(),
        None => Some(answer.await),
    }
}

fn late(timeout: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("the store did not answer within {timeout:?}"))
}
