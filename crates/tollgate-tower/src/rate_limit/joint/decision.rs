use std::time::Duration;

use tollgate::{Decision, Key, Limiter};

/// Holds the decisions of all limits that apply to one request.
///
/// A [`RequestDecider`](crate::RequestDecider) returns it. The layer turns it into the same answer as the decision of one
/// limiter: the header fields list the policies of all decisions, and the wait of a denial is the longest of all.
#[derive(Clone, Debug)]
#[must_use = "a decision that is ignored limits nothing"]
pub struct JointDecision {
    is_allowed: bool,
    decisions: Vec<KeyDecision>,
}

/// Holds one decision, with all that a refund needs.
#[derive(Clone, Debug)]
pub(crate) struct KeyDecision {
    pub(crate) limiter: Limiter,
    pub(crate) key: Key,
    pub(crate) decision: Decision,
    /// Tells whether the decision is only counted.
    pub(crate) is_shadow: bool,
}

impl JointDecision {
    /// Lets the request pass.
    pub fn allowed() -> Self {
        Self { is_allowed: true, decisions: Vec::new() }
    }

    /// Denies the request.
    ///
    /// Add the decisions that deny it, and no others: the client is told of these. A denial without decisions is one
    /// that no wait ends. Its response has no `Retry-After`.
    pub fn denied() -> Self {
        Self { is_allowed: false, decisions: Vec::new() }
    }

    /// Adds the decision of a limiter for a key. A [final cost](crate::RateLimitBuilder::final_cost) refunds it.
    pub fn with(self, limiter: Limiter, key: Key, decision: Decision) -> Self {
        self.push(KeyDecision { limiter, key, decision, is_shadow: false })
    }

    /// Adds a decision that is counted in the metrics, and has no part in the answer: a limit that is tried out.
    pub fn with_shadow(self, limiter: Limiter, key: Key, decision: Decision) -> Self {
        self.push(KeyDecision { limiter, key, decision, is_shadow: true })
    }

    fn push(mut self, decision: KeyDecision) -> Self {
        self.decisions.push(decision);
        self
    }

    /// Returns whether the request may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Returns the decisions that have a part in the answer, in the order in which they were added.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.parts().map(|part| &part.decision)
    }

    /// Returns all decisions, also those that are only counted.
    pub(crate) fn all(&self) -> &[KeyDecision] {
        &self.decisions
    }

    /// Returns the decisions that have a part in the answer.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &KeyDecision> {
        self.decisions.iter().filter(|part| !part.is_shadow)
    }

    /// Returns how long an allowed request waits for its turn in all [queues](tollgate::Algorithm::LeakyBucket).
    pub(crate) fn delay(&self) -> Duration {
        if !self.is_allowed {
            return Duration::ZERO;
        }
        self.decisions().map(Decision::delay).max().unwrap_or_default()
    }
}
