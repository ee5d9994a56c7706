//! Derives the outcomes of the charges. In the mode `envoy`, they are those of counters that denied requests raise too.

use futures_util::future::{join, join_all};
use tollgate::{Cost, PolicyState};

use super::{
    charge::{Charge, now},
    exceeded::Exceeded,
};
use crate::{Compat, Match, Outcome, Plan, Planned, rule::Limit};

/// Returns the outcomes. In the mode `envoy`, a denied descriptor loses what it had left, and a check of 0 units is denied
/// only when more than the limit was asked for before.
pub(super) async fn settle(plan: &Plan<'_>, charges: &[Option<Charge>], exceeded: &Exceeded) -> Vec<Option<Outcome>> {
    let descriptors = plan.iter().zip(charges).map(|(planned, charge)| (planned, charge.as_ref()));
    if plan.compat().is_envoy() {
        return join_all(descriptors.map(|(planned, charge)| raise(planned, charge, exceeded))).await;
    }
    let blocked = |planned: &Planned<'_>| planned.charged().and_then(|found| blocked(found, planned.hits()));
    descriptors.map(|(planned, charge)| charge.map(|charge| charge.outcome).or_else(|| blocked(planned))).collect()
}

/// Returns the outcome of a descriptor in the mode `envoy`, and raises its counter when it is denied.
async fn raise(planned: &Planned<'_>, charge: Option<&Charge>, exceeded: &Exceeded) -> Option<Outcome> {
    let found = planned.charged()?;
    let (limit, period) = found.rule().amount()?;
    let hits = planned.hits();
    let Some(charge) = charge else {
        let outcome = blocked(found, hits)?;
        if hits > 0 {
            exceeded.mark(&found.key(), period).await;
            return Some(outcome);
        }
        return Some(outcome.with_over(exceeded.is_marked(&found.key(), period).await));
    };
    if charge.decision.as_ref().is_ok_and(tollgate::Decision::is_degraded) {
        return Some(charge.outcome);
    }
    if hits == 0 {
        let is_over = charge.outcome.remaining() == 0 && exceeded.is_marked(&charge.key, period).await;
        return Some(charge.outcome.with_over(is_over));
    }
    if !charge.outcome.is_over() {
        return Some(charge.outcome);
    }
    let left = left(charge).await;
    join(spend(charge, left), exceeded.mark(&charge.key, period)).await;
    let after = limit.saturating_sub(left).saturating_add(hits);
    Some(Outcome::from_count(limit, period, after, hits, now(), Compat::Envoy))
}

/// Returns the units that a denied descriptor has left.
async fn left(charge: &Charge) -> u64 {
    let least = |states: &mut dyn Iterator<Item = PolicyState<'_>>| states.map(|state| state.remaining()).min();
    let left = match &charge.decision {
        Ok(decision) => least(&mut decision.states()),
        // More units than the limit ever has were not sent to the store.
        Err(_) => match charge.limiter.peek(charge.key.clone()).await {
            Ok(state) => least(&mut state.states()),
            Err(_) => None,
        },
    };
    left.unwrap_or(0)
}

/// Spends the units that are left, because Envoy's service counts denied units too.
async fn spend(charge: &Charge, left: u64) {
    if left > 0
        && let Err(error) = charge.limiter.check_key(&charge.key, Cost::new(left)).await
    {
        tracing::debug!(limiter = charge.limiter.name(), %error, "a denied request was not charged");
    }
}

/// Returns the outcome of a rule that denies every request.
fn blocked(found: &Match<'_>, hits: u64) -> Option<Outcome> {
    match found.rule().limit() {
        Limit::Blocked { period } => Some(Outcome::blocked(*period, hits, now())),
        _ => None,
    }
}
