//! Charges the descriptors of a request, and refunds them.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tollgate::{Cost, Decision, Error, Key, Limiter};

use crate::{Match, Outcome, Plan, rule::Limit};

/// One descriptor that was charged.
pub(super) struct Charge {
    pub(super) limiter: Limiter,
    pub(super) key: Key,
    pub(super) outcome: Outcome,
    /// The error says that the units never fit.
    pub(super) decision: Result<Decision, Error>,
    /// The rule is in shadow mode.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only a layer hides such decisions"))]
    pub(super) is_shadow: bool,
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
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
