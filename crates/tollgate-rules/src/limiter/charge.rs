//! Charges the descriptors of a request, and refunds them.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tollgate::{Cost, Decision, Error, ErrorKind, Key, Limiter, PolicySet};

use super::steps::{Step, Steps};
use crate::{GlobalModes, Match, Outcome, Plan, Planned, Rule, rule::Limit};

/// One descriptor that was charged.
pub(super) struct Charge {
    pub(super) limiter: Limiter,
    pub(super) key: Key,
    outcome: Outcome,
    /// The error says that the units never fit.
    pub(super) decision: Result<Decision, Error>,
    /// The rule is in shadow mode.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only a layer hides such decisions"))]
    pub(super) is_shadow: bool,
}

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

/// Charges all descriptors of a plan. A descriptor that counts nothing has no charge.
///
/// Descriptors that deny the request alone are charged in one step where the store can do that: see [`steps`].
pub(super) async fn charge<'l>(
    plan: &Plan<'_>,
    steps: &Steps,
    modes: GlobalModes,
    limiter: impl Fn(&Rule) -> &'l Limiter,
) -> Result<Vec<Option<Charge>>, Error> {
    let pending = plan.iter().enumerate().filter_map(|(place, planned)| pending(place, planned, &limiter));
    let results = join_all(steps.of(plan, modes, pending).into_iter().map(Step::check)).await;
    let mut charges: Vec<Option<Charge>> = plan.iter().map(|_| None).collect();
    let mut first = None;
    for result in results {
        match result {
            Ok(charged) => charged.into_iter().for_each(|(place, charge)| charges[place] = Some(charge)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    match first {
        Some(error) => {
            refund(&charges).await;
            Err(error)
        }
        None => Ok(charges),
    }
}

fn pending<'p, 'l>(
    place: usize,
    planned: &'p Planned<'_>,
    limiter: impl Fn(&Rule) -> &'l Limiter,
) -> Option<Pending<'p, 'l>> {
    let found = planned.charged()?;
    let rule = found.rule();
    Some(Pending { planned, rule, policies: rule.policies()?, limiter: limiter(rule), key: found.key(), place })
}

/// Returns the outcomes. In the mode `envoy`, a denied descriptor loses what it had left.
pub(super) async fn settle_denied(plan: &Plan<'_>, charges: &[Option<Charge>]) -> Vec<Option<Outcome>> {
    let mut outcomes = Vec::with_capacity(charges.len());
    for (planned, charge) in plan.iter().zip(charges) {
        if let Some(charge) = charge.as_ref().filter(|_| plan.compat().is_envoy()) {
            charge.spend_rest(planned.hits()).await;
        }
        let blocked = || planned.charged().and_then(|found| blocked(found, planned.hits()));
        outcomes.push(charge.as_ref().map(|charge| charge.outcome).or_else(blocked));
    }
    outcomes
}

/// Refunds everything that was charged.
pub(super) async fn refund(charges: &[Option<Charge>]) {
    join_all(charges.iter().flatten().map(Charge::refund)).await;
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

impl Charge {
    async fn refund(&self) {
        let Ok(decision) = &self.decision else { return };
        if let Err(error) = self.limiter.refund_decision(self.key.clone(), decision, decision.cost()).await {
            tracing::debug!(limiter = self.limiter.name(), %error, "a denied request was not refunded");
        }
    }

    /// Spends the units that are left, because Envoy's service counts denied units too.
    async fn spend_rest(&self, hits: u64) {
        if !self.outcome.is_over() || hits == 0 {
            return;
        }
        let left = match &self.decision {
            Ok(decision) if decision.is_degraded() => return,
            Ok(decision) => decision.states().map(|state| state.remaining()).min(),
            Err(_) => match self.limiter.peek(self.key.clone()).await {
                Ok(state) => state.states().map(|state| state.remaining()).min(),
                Err(_) => None,
            },
        };
        let left = left.unwrap_or(0);
        if left > 0
            && let Err(error) = self.limiter.check_key(&self.key, Cost::new(left)).await
        {
            tracing::debug!(limiter = self.limiter.name(), %error, "a denied request was not charged");
        }
    }
}

/// Returns the outcome of a rule that denies every request.
fn blocked(found: &Match<'_>, hits: u64) -> Option<Outcome> {
    match found.rule().limit() {
        Limit::Blocked { period } => Some(Outcome::blocked(*period, hits, now())),
        _ => None,
    }
}

/// Returns the time since the Unix epoch, from which the end of a window is told.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
