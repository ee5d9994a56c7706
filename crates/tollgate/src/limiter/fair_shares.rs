//! Fair shares: who was admitted much lately leaves a part of the burst to others.
//! What each customer has spent lately is measured in `store/spending.rs`; the denial itself is
//! that of any priority.

use std::sync::OnceLock;

use super::Limiter;
use crate::{
    Cost, Costs, Customer, Decision, Error, Key, Policy, PolicySet, Priority, Store,
    clock::Clock,
    model::{
        Ceiling,
        charge::{Charge, ChargeRef},
        policy::MAX_POLICIES,
        priority::refuse_leased,
    },
    store::{FADES_IN, ReplicaGroup, Spending},
};

/// A customer that alone has spent a limit for some time leaves this part of the burst to others,
/// in percent.
const MOST_LEFT: f64 = 60.0;

/// The smallest burst with room for a few priorities.
const LEAST_BURST: u64 = 10;

/// Gives each check the priority that its customer has now.
pub(crate) struct FairShares {
    group: ReplicaGroup,
    /// `None` for the monotonic clock.
    clock: Option<Clock>,
    /// Begins with the first check that names a customer.
    spending: OnceLock<Spending>,
}

impl FairShares {
    pub(super) fn new(group: ReplicaGroup, clock: Option<Clock>) -> Self {
        Self {
            group,
            clock,
            spending: OnceLock::new(),
        }
    }

    /// Returns the charge of a check under the priority of its customer for each policy.
    fn rank(
        &self,
        store: &dyn Store,
        policies: &PolicySet,
        key: &Key,
        customer: Customer,
        charge: &Charge,
    ) -> Charge {
        let spending = self.spending.get_or_init(|| {
            let spending = Spending::new(self.clock.clone().unwrap_or_else(Clock::monotonic));
            store.exchange(self.group, &spending);
            spending
        });
        let mut spenders = [0; MAX_POLICIES];
        let costs = charge.borrow().iter(policies.len());
        let each = policies.iter().zip(costs).zip(&mut spenders);
        let ceilings = each.map(|((policy, cost), spender)| {
            if !policy.is_ranked() {
                return Ceiling::share_of(Priority::CRITICAL, policy);
            }
            *spender = customer.spender(policy, key);
            let spent = spending.spent(*spender) / f64::from(customer.weight().get());
            Ceiling::share_of(priority(policy, cost, spent, fastrand::f64()), policy)
        });
        charge.under(ceilings).spent_by(spenders)
    }

    /// Counts what a customer was admitted.
    fn admitted(&self, charge: ChargeRef<'_>, decision: &Decision) {
        let (Some(spenders), Some(spending)) = (charge.spenders(), self.spending.get()) else {
            return;
        };
        for (at, &spender) in spenders.iter().enumerate() {
            if spender != 0 {
                spending.add(spender, decision.charge().of(at));
            }
        }
    }
}

/// Returns the priority of a customer that has spent so much of a policy lately, for its weight.
///
/// The bucket is the controller: its level sinks until those are denied who have spent most. The
/// logarithm makes a percent of the burst the same step for small shares and large ones. `random`
/// is below 1: a step is too coarse, and right on average.
fn priority(policy: &Policy, cost: Cost, spent: f64, random: f64) -> Priority {
    let quota = policy.quota_ref();
    let whole = quota.amount() as f64 * FADES_IN.as_secs_f64() / quota.period().as_secs_f64();
    let left = (MOST_LEFT * spent.ln_1p() / whole.ln_1p() + random).min(99.0);
    // A cost that fits the burst is denied at the worst. A check of a lower priority would fail.
    let fits = cost.units().saturating_sub(1).saturating_mul(100) / quota.burst().max(1) + 1;
    Priority::percent((100 - left as u8).max(fits.min(100) as u8))
}

/// Refuses policies under which shares cannot be fair.
pub(super) fn refuse(policies: &PolicySet) -> Result<(), Error> {
    refuse_leased(policies)?;
    for policy in policies.iter().filter(|policy| policy.is_ranked()) {
        let (name, algorithm) = (policy.name(), policy.algorithm());
        let burst = policy.quota_ref().burst();
        let refused = if !algorithm.has_burst() {
            format!("a bucket, and policy {name} is a {algorithm}")
        } else if burst < LEAST_BURST {
            format!("a burst of {LEAST_BURST} units or more, and policy {name} has {burst}")
        } else {
            continue;
        };
        return Err(Error::config(format!(
            "fair shares need {refused}: make it unranked if it belongs to one customer"
        )));
    }
    Ok(())
}

impl Limiter {
    /// Returns the charge of a check under its priority, or its customer's.
    pub(super) fn rank(&self, key: &Key, costs: &Costs, charge: Charge) -> Result<Charge, Error> {
        let (policies, inner) = (self.policies(), self.inner());
        let Some(customer) = costs.customer() else {
            return costs.priority().rank(policies, charge);
        };
        let Some(shares) = &inner.fair_shares else {
            return Err(Error::config(
                "a check has a customer, and the limiter has no fair shares: build it with LimiterBuilder::fair_shares, or \
                 leave the customer out",
            ));
        };
        if costs.priority() != Priority::CRITICAL {
            return Err(Error::config(format!(
                "a check has a customer or a priority, got both and {:?}",
                costs.priority()
            )));
        }
        refuse_leased(policies)?;
        policies.reaches(key)?;
        Ok(shares.rank(&*inner.store, policies, key, customer, &charge))
    }
}

impl super::LimiterInner {
    /// Counts the admission of a check of this charge for the share of its customer.
    #[inline]
    pub(super) fn count_share(&self, charge: ChargeRef<'_>, decision: &Decision) {
        if let Some(shares) = &self.fair_shares
            && decision.is_allowed()
        {
            shares.admitted(charge, decision);
        }
    }
}
