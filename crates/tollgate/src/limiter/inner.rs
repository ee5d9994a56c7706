use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    Check, CheckFuture, Cost, Deadline, Decision, Error, Key, PolicySet, Store, StoreFuture,
    limiter::{outage::Fallback, wait::queue::WaitQueues},
    model::{cost::ChargeRef, entry::TAG_BYTES},
    store::{Guard, PendingCheck, answer_by},
};

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
        if policies.is_blocked() {
            return StoreFuture::ready(Ok(self.block(policies, key, charge)));
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
            None => return self.wait(answer_by(Some(deadline), answer), check),
        }
        answer
    }

    /// Denies a check because a policy blocks, without the store.
    #[cold]
    pub(super) fn block(&self, policies: &PolicySet, key: &Key, charge: ChargeRef<'_>) -> Decision {
        let decision = Decision::blocked(policies, charge);
        self.fallback.answered_in_process(policies, key, Some(Ok(&decision)));
        decision
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

    /// Tells what a check would decide. It is neither charged nor counted.
    pub(super) async fn look(&self, policies: &PolicySet, key: &Key, charge: ChargeRef<'_>) -> Result<Decision, Error> {
        if policies.is_blocked() {
            return Ok(Decision::blocked(policies, charge));
        }
        policies.admits(charge).and_then(|()| policies.reaches(key))?;
        let check = Check { deadline: self.deadline(), ..Check::of(policies, key, charge) };
        match self.call(check, |check| self.store.look(check)).await {
            Ok(look) => {
                if let (Some(deadline), false) = (check.deadline, look.is_in_process()) {
                    self.fallback.answered(deadline.start());
                }
                Ok(look)
            }
            Err(error) if self.is_in_process => Err(error),
            Err(error) => self.fallback.look(check, error),
        }
    }

    pub(super) async fn refund(
        &self,
        policies: &PolicySet,
        key: &Key,
        charge: ChargeRef<'_>,
        decision: Option<&Decision>,
    ) -> Result<(), Error> {
        if charge.cost == Cost::ZERO || policies.is_blocked() {
            return Ok(());
        }
        policies.reaches(key)?;
        self.call(Check::of(policies, key, charge), |check| self.store.refund(check, decision)).await
    }

    /// Calls the store, and waits for its answer until the deadline.
    pub(super) async fn call<T: Unpin>(
        &self,
        check: Check<'_>,
        call: impl FnOnce(Check<'_>) -> StoreFuture<T>,
    ) -> Result<T, Error> {
        let deadline = check.deadline.or_else(|| self.deadline());
        match call(Check { deadline, ..check }).into_ready() {
            Ok(answer) => answer,
            Err(pending) => answer_by(deadline, pending).await,
        }
    }

    /// Returns the deadline of a call that is made now. A store in the process has none.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        (!self.is_in_process).then(|| Deadline::after(self.timeout))
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
