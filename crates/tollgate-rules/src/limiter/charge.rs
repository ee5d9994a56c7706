//! Charges the descriptors of a request, and refunds them.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tollgate::{Cost, Decision, Error, ErrorKind, Key, Limiter};

use crate::{Match, Outcome, Plan, Planned, Rule, rule::Limit};

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
struct Pending<'a, 'p> {
    planned: &'p Planned<'a>,
    limiter: Limiter,
    key: Key,
}

/// Charges all descriptors of a plan. A descriptor that counts nothing has no charge.
pub(super) async fn charge<'l>(
    plan: &Plan<'_>,
    limiter: impl Fn(&Rule) -> &'l Limiter,
) -> Result<Vec<Option<Charge>>, Error> {
    let checks = plan.iter().map(|planned| {
        let pending = pending(planned, &limiter);
        async {
            match pending {
                None => Ok(None),
                Some(pending) => pending.check().await.map(Some),
            }
        }
    });
    let results = join_all(checks).await;
    if results.iter().all(Result::is_ok) {
        return Ok(results.into_iter().flatten().collect());
    }
    let (mut charges, mut first) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(charge) => charges.push(charge),
            Err(error) => first = first.or(Some(error)),
        }
    }
    refund(&charges).await;
    match first {
        Some(error) => Err(error),
        None => Ok(charges),
    }
}

fn pending<'a, 'p, 'l>(planned: &'p Planned<'a>, limiter: impl Fn(&Rule) -> &'l Limiter) -> Option<Pending<'a, 'p>> {
    let found = planned.charged()?;
    let policies = found.rule().policies()?;
    let limiter = limiter(found.rule()).with_policies(policies.clone());
    Some(Pending { planned, limiter, key: found.key() })
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
    async fn check(self) -> Result<Charge, Error> {
        let Self { planned, limiter, key } = self;
        let hits = planned.hits();
        let is_shadow = planned.charged().is_some_and(|found| found.rule().is_shadow());
        match limiter.check_key(&key, Cost::new(hits)).await {
            Ok(decision) => {
                let outcome = Outcome::from_decision(&decision);
                Ok(Charge { limiter, key, outcome, decision: Ok(decision), is_shadow })
            }
            Err(error) if error.kind() == ErrorKind::CostExceedsBurst => {
                let period = planned.charged().and_then(|found| found.rule().amount()).map(|(_, period)| period);
                let outcome = Outcome::blocked(period.unwrap_or_default(), hits, now());
                Ok(Charge { limiter, key, outcome, decision: Err(error), is_shadow })
            }
            Err(error) => Err(error),
        }
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
