//! The charge of an admitted request until its response is known: then it is refunded in part, or
//! charged late.
//! Estimates that a store holds are in `rate_limit/reservation/`. The first charge is made in
//! `rate_limit/ask.rs`.

use std::sync::Arc;

use http::{StatusCode, response};
use smallvec::SmallVec;
use tollgate_core::{Algorithm, Cost, Costs, Decision, Key, Limiter, Policy, PolicySet};

use crate::gate::in_background;

/// Describes how an admitted request ended.
///
/// The closure of [`RateLimitBuilder::final_cost`](crate::RateLimitBuilder::final_cost) receives
/// it.
///
/// ```
/// use http::StatusCode;
/// use tollgate_tower::Outcome;
///
/// assert_eq!(Outcome::Failed.status(), Some(StatusCode::INTERNAL_SERVER_ERROR));
/// assert_eq!(Outcome::Cancelled.status(), None);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The service returned a response. Its body may not have been sent yet.
    Response(&'a response::Parts),
    /// The service returned an error instead of a response.
    Failed,
    /// The service panicked.
    Panicked,
    /// The request was dropped before the service returned a response. Most often the client has
    /// disconnected.
    Cancelled,
}

impl<'a> Outcome<'a> {
    /// Returns the head of the response, if the service returned one.
    #[must_use]
    pub fn response(&self) -> Option<&'a response::Parts> {
        match self {
            Self::Response(parts) => Some(parts),
            _ => None,
        }
    }

    /// Returns the status that the client receives.
    ///
    /// A service that fails or panics counts as 500. A cancelled request has no status.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Response(parts) => Some(parts.status),
            Self::Failed | Self::Panicked => Some(StatusCode::INTERNAL_SERVER_ERROR),
            Self::Cancelled => None,
        }
    }
}

/// Computes the final costs of a request from its outcome and the decision that admitted it.
type FinalCosts = dyn Fn(Outcome<'_>, &Decision) -> Costs + Send + Sync;

/// Decides what follows a response.
#[derive(Clone)]
pub(crate) struct FinalCost {
    cost: CostOfOutcome,
    /// Selects the responses that clear the lockouts of their key.
    clears: Option<Arc<dyn Fn(StatusCode) -> bool + Send + Sync>>,
}

/// Computes the final cost of a request from its outcome.
#[derive(Clone)]
pub(crate) enum CostOfOutcome {
    /// One cost for all policies, from the cost that was charged.
    One(Arc<dyn Fn(Outcome<'_>, Cost) -> Cost + Send + Sync>),
    /// A cost for each policy, from the decision that charged them.
    Each(Arc<FinalCosts>),
}

/// The cost of a request that is charged after the response.
#[derive(Clone)]
pub(crate) enum Due {
    One(Cost),
    Each(Box<Costs>),
}

impl FinalCost {
    /// Sets the cost in the options of a layer.
    pub(crate) fn set_cost(options: &mut Option<Self>, cost: CostOfOutcome) {
        let clears = options.take().and_then(|before| before.clears);
        *options = Some(Self { cost, clears });
    }

    /// Sets the responses that clear lockouts in the options of a layer.
    pub(crate) fn set_clears(
        options: &mut Option<Self>,
        clears: impl Fn(StatusCode) -> bool + Send + Sync + 'static,
    ) {
        let keeps = || CostOfOutcome::One(Arc::new(|_, charged| charged));
        let cost = options.take().map_or_else(keeps, |before| before.cost);
        *options = Some(Self {
            cost,
            clears: Some(Arc::new(clears)),
        });
    }

    fn is_cleared(&self, outcome: Outcome<'_>) -> bool {
        self.clears
            .as_ref()
            .zip(outcome.status())
            .is_some_and(|(clears, status)| clears(status))
    }
}

impl CostOfOutcome {
    /// Returns whether a request of any cost is charged after this outcome.
    fn is_charged(&self, outcome: Outcome<'_>) -> bool {
        match self {
            Self::One(final_cost) => final_cost(outcome, Cost::ONE) > Cost::ZERO,
            Self::Each(_) => true,
        }
    }

    /// Returns what the final cost leaves of the charge for each policy. `None` when nothing is
    /// left.
    fn surplus(&self, decision: &Decision, outcome: Outcome<'_>) -> Option<Costs> {
        let last = match self {
            Self::One(final_cost) => Costs::new(final_cost(outcome, decision.cost())),
            Self::Each(final_costs) => final_costs(outcome, decision),
        };
        let left = |charged: Cost, last: Option<Cost>| {
            charged
                .units()
                .saturating_sub(last.unwrap_or(charged).units())
        };
        if let Self::One(_) = self
            && decision
                .states()
                .all(|state| state.cost() == decision.cost())
        {
            // All policies have one cost, so none needs a name.
            let surplus = left(decision.cost(), last.cost_of(""));
            return (surplus > 0).then(|| Costs::new(Cost::new(surplus)));
        }
        let (mut costs, mut is_any) = (Costs::new(Cost::ZERO), false);
        for state in decision.states() {
            let surplus = left(state.cost(), last.cost_of(state.policy().name()));
            is_any |= surplus > 0;
            costs = costs.with(state.policy().name().to_owned(), surplus);
        }
        is_any.then_some(costs)
    }
}

/// Keeps the charge of a request until its final cost is known. Dropping the charge settles it too.
pub(crate) struct UnsettledCharge {
    charged: SmallVec<[Charged; 1]>,
    /// The cost to charge after the response. `None` when the decision has charged it.
    due: Option<Due>,
    /// `None` once the charge is settled.
    final_cost: Option<FinalCost>,
    /// Is true while the service runs. A charge that is dropped meanwhile belongs to a service that
    /// has panicked.
    pub(crate) is_running: bool,
}

/// Keeps what one limiter has charged to one key.
#[derive(Clone, Debug)]
pub(crate) struct Charged {
    pub(crate) limiter: Limiter,
    pub(crate) key: Key,
    pub(crate) decision: Decision,
}

impl Charged {
    /// Refunds all that was charged in the background.
    pub(crate) fn refund_all(&self) {
        self.refund(self.decision.cost().into());
    }

    /// Refunds `costs` in the background. The response does not wait for it.
    fn refund(&self, costs: Costs) {
        let is_in_process = self.limiter.is_in_process();
        let Self {
            limiter,
            key,
            decision,
        } = self.clone();
        in_background(is_in_process, async move {
            if let Err(error) = limiter.refund(key, costs).of(&decision).await {
                tracing::debug!(%error, "a refund failed");
            }
        });
    }

    /// Refunds what the final cost leaves of the charge, or charges the final cost where nothing is
    /// charged yet. Returns whether it refunds.
    fn settle(&self, final_cost: &FinalCost, outcome: Outcome<'_>, due: Option<&Due>) -> bool {
        let is_refunded = self.settle_cost(&final_cost.cost, outcome, due);
        if final_cost.is_cleared(outcome) {
            clear_lockouts(&self.limiter, &self.key);
        }
        is_refunded
    }

    fn settle_cost(
        &self,
        final_cost: &CostOfOutcome,
        outcome: Outcome<'_>,
        due: Option<&Due>,
    ) -> bool {
        match due {
            None => {
                let Some(surplus) = final_cost.surplus(&self.decision, outcome) else {
                    return false;
                };
                self.refund(surplus);
                return true;
            }
            Some(_) if !final_cost.is_charged(outcome) => {}
            Some(Due::One(cost)) => charge(&self.limiter, &self.key, Costs::new(*cost)),
            Some(Due::Each(costs)) => charge(&self.limiter, &self.key, (**costs).clone()),
        }
        false
    }
}

impl UnsettledCharge {
    pub(crate) fn new(
        charged: SmallVec<[Charged; 1]>,
        due: Option<Due>,
        final_cost: FinalCost,
    ) -> Self {
        Self {
            charged,
            due,
            final_cost: Some(final_cost),
            is_running: false,
        }
    }

    /// Settles the charge of each limiter. Returns whether one of them gets units back.
    pub(crate) fn settle(&mut self, outcome: Outcome<'_>) -> bool {
        let Some(final_cost) = self.final_cost.take() else {
            return false;
        };
        let settle = |charged: &Charged| charged.settle(&final_cost, outcome, self.due.as_ref());
        self.charged
            .iter()
            .map(settle)
            .fold(false, |any, is_refunded| any | is_refunded)
    }
}

impl Drop for UnsettledCharge {
    fn drop(&mut self) {
        self.settle(if self.is_running {
            Outcome::Panicked
        } else {
            Outcome::Cancelled
        });
    }
}

/// Clears the lockouts of a key in the background. Policies of other algorithms keep what is spent.
fn clear_lockouts(limiter: &Limiter, key: &Key) {
    let is_lockout = |policy: &&Policy| matches!(policy.algorithm(), Algorithm::Lockout { .. });
    // No error: a set has had these names.
    let Ok(lockouts) = PolicySet::try_new(limiter.policies().iter().filter(is_lockout).cloned())
    else {
        return;
    };
    let is_in_process = limiter.is_in_process();
    let (limiter, key) = (limiter.with_policies(lockouts), key.clone());
    in_background(is_in_process, async move {
        if let Err(error) = limiter.reset(key).await {
            tracing::debug!(%error, "lockouts were not cleared");
        }
    });
}

/// Charges `costs` in the background. A denial means that other requests have spent the quota
/// meanwhile.
fn charge(limiter: &Limiter, key: &Key, costs: Costs) {
    let is_in_process = limiter.is_in_process();
    let (limiter, key) = (limiter.clone(), key.clone());
    in_background(is_in_process, async move {
        if let Err(error) = limiter.check(key).cost(costs).await {
            tracing::debug!(%error, "a charge after the response failed");
        }
    });
}
