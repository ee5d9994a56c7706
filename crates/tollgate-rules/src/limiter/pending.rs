//! Charges one descriptor.

use tollgate::{Cost, Decision, Error, ErrorKind, Key, Limiter, PolicySet};

use super::charge::{Charge, now};
use crate::{Outcome, Planned, Rule};

/// One descriptor before it is charged.
pub(super) struct Pending<'p, 'l> {
    pub(super) planned: &'p Planned<'p>,
    pub(super) rule: &'p Rule,
    pub(super) policies: &'p PolicySet,
    /// The limiter with the answer that the rule has in an outage.
    pub(super) limiter: &'l Limiter,
    pub(super) key: Key,
    /// The place of the descriptor in the request.
    pub(super) place: usize,
}

impl<'p, 'l> Pending<'p, 'l> {
    /// Returns the descriptor at this place, if it counts something.
    pub(super) fn of(place: usize, planned: &'p Planned<'_>, limiter: impl Fn(&Rule) -> &'l Limiter) -> Option<Self> {
        let found = planned.charged()?;
        let rule = found.rule();
        Some(Self { planned, rule, policies: rule.policies()?, limiter: limiter(rule), key: found.key(), place })
    }
}

impl Pending<'_, '_> {
    /// Charges the descriptor in a step of its own.
    pub(super) async fn check(self) -> Result<Charge, Error> {
        let hits = self.planned.hits();
        let limiter = self.limiter.with_policies(self.policies.clone());
        let (outcome, decision) = match limiter.check_key(&self.key, Cost::new(hits)).await {
            Ok(decision) => (Outcome::from_decision(&decision), Ok(decision)),
            Err(error) if error.kind() == ErrorKind::CostExceedsBurst => {
                let period = self.rule.amount().map(|(_, period)| period).unwrap_or_default();
                (Outcome::blocked(period, hits, now()), Err(error))
            }
            Err(error) => return Err(error),
        };
        Ok(Charge { limiter, key: self.key, outcome, decision, is_shadow: self.rule.is_shadow() })
    }

    /// Returns the charge of a descriptor that was decided together with others. `branch` is its branch, from 1.
    pub(super) fn charged(self, branch: u8, decision: &Decision) -> Charge {
        let hits = self.planned.hits();
        let limiter = self.limiter.with_policies(self.policies.clone());
        // Every descriptor has policies, so the decision has a part for it.
        let part = decision.branch(branch).unwrap_or_else(|| decision.clone());
        let is_uncharged = decision.is_denied() && part.is_allowed() && hits > 0;
        let outcome = if is_uncharged { Outcome::uncharged(&part, hits) } else { Outcome::from_decision(&part) };
        Charge { limiter, key: self.key, outcome, decision: Ok(part), is_shadow: self.rule.is_shadow() }
    }
}
