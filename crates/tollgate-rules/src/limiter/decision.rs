//! What a check of rules returns: the verdict with the decision of each descriptor, or the reason
//! why there is none.
//! How a verdict comes about is in `verdict/`.

use std::{fmt, time::Duration};

use smallvec::SmallVec;
use tollgate::{Decision, Error, limiter::PolicyState};

use crate::{Code, RequestError, Verdict};

/// The outcome of a check of [`RuleLimiter`](crate::RuleLimiter).
#[derive(Clone, Debug)]
#[must_use = "a decision that is ignored limits nothing"]
pub struct RuleDecision {
    verdict: Verdict,
    decisions: SmallVec<[Option<Decision>; 1]>,
}

impl RuleDecision {
    pub(super) fn new(verdict: Verdict, decisions: SmallVec<[Option<Decision>; 1]>) -> Self {
        Self { verdict, decisions }
    }

    /// Returns whether the request may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.verdict.code() == Code::Ok
    }

    /// Returns whether the request must not pass.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Returns the answer with the status of each descriptor.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Returns the decision for each descriptor, in the order of the request. `None` where nothing
    /// was counted.
    #[must_use]
    pub fn decisions(&self) -> &[Option<Decision>] {
        &self.decisions
    }

    /// Returns how long to wait until every descriptor that denied the request has the units again.
    /// `None` when the request is allowed, or when no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed() {
            return None;
        }
        let denied = self.verdict.statuses().iter().zip(&self.decisions);
        let denied = denied.filter(|(status, _)| status.code() == Code::OverLimit);
        let waits: Option<Vec<_>> = denied
            .map(|(_, decision)| wait(decision.as_ref()?))
            .collect();
        waits?.into_iter().max()
    }
}

/// Returns the wait of a decision that denies the request. A check of 0 units waits for one unit.
fn wait(decision: &Decision) -> Option<Duration> {
    let is_spent = |state: &PolicyState<'_>| decision.cost().units() == 0 && state.remaining() == 0;
    let until_one = || {
        decision
            .states()
            .filter(is_spent)
            .map(|state| state.next_unit_after())
            .max()
    };
    decision.retry_after().or_else(until_one)
}

/// Reports why a request was not decided.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The request has no domain or no descriptors.
    Request(RequestError),
    /// The store did not decide, for example in an outage in which the limit is
    /// [closed](tollgate::Outage::Closed).
    Store(Error),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(error) => Some(error),
            Self::Store(error) => Some(error),
        }
    }
}

impl From<RequestError> for CheckError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl From<Error> for CheckError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}
