//! Fair shares: who was admitted much lately leaves a part of the burst to others.
//! What each customer has spent lately is measured in `store/spending/mod.rs`; the denial itself is
//! that of any priority.

use std::sync::OnceLock;

use smallvec::SmallVec;
use tollgate_model::{
    Ceiling,
    raw::{
        Account, CeilingParts, Ceilings, Charge, CustomerParts, DecisionParts, PolicyParts,
        PolicySetParts, PriorityParts, Spender, refuse_leased,
    },
};

use super::Limiter;
use crate::{
    Algorithm, Cost, Costs, Customer, Decision, Error, Key, Policy, PolicySet, Priority, Store,
    clock::Clock,
    store::{Check, Filling, ReplicaGroup, Seen, Spending},
};

/// The part of the burst that is kept for who comes next while a customer is alone, in percent.
const KEPT_ALONE: u64 = 12;

/// The part of the burst that those leave to others who have spent most.
const KEPT_MOST: f64 = 0.6;

/// A customer is alone while the others are less than this part of one. What was counted fades in
/// steps.
const NOBODY: f64 = 1.0 / 32.0;

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
        let mut spender = Spender {
            customer,
            accounts: SmallVec::new(),
            is_new: false,
        };
        let mut ceilings = Ceilings::new();
        for (at, policy) in policies.iter().enumerate() {
            if !policy.is_ranked() {
                ceilings.push(Ceiling::share_of(Priority::CRITICAL, policy));
                continue;
            }
            let (filling, cost) = (Filling::of(policy.quota_ref()), charge.borrow().of(at));
            let state = filling.state(policy, key);
            let seen = spending.see(state, customer, &filling);
            spender.is_new |= seen.is_new();
            let weight = f64::from(customer.weight().get());
            let priority = priority(policy, &filling, cost, &seen, weight, fastrand::f64);
            ceilings.push(Ceiling::share_of(priority, policy));
            spender.accounts.push(Account { at, ..seen.account });
        }
        charge.spent_by(ceilings, Some(spender))
    }

    /// Counts what a customer was admitted, or that it asked.
    fn decided(&self, check: Check<'_>, decision: &Decision) {
        let (Some(spender), Some(spending)) = (check.charge().spender(), self.spending.get())
        else {
            return;
        };
        let is_allowed = decision.is_allowed();
        if !is_allowed && !spender.is_new {
            return;
        }
        let (asked, decided) = (check.policies.shared(), decision.policies().shared());
        for account in &spender.accounts {
            if !is_allowed {
                spending.ask(account, spender.customer);
            } else if let (Some(asked), Some(decided)) =
                (asked.get(account.at), decided.get(account.at))
            {
                // In an outage, a unit of the part that this process has is several of the whole.
                let [whole, part] =
                    [asked, decided].map(|policy| policy.quota_ref().amount().max(1) as f64);
                let units = decision.charge().of(account.at).units() as f64;
                spending.add(account, spender.customer, units * whole / part);
            }
        }
    }
}

/// Returns the priority of a check of a customer.
///
/// Who spends no more than its share gives it, but for a bunch, leaves nothing to others. Who is
/// alone leaves a small part of the burst, and who spends more than its share beside others leaves up
/// to [`KEPT_MOST`], the more the more it has spent lately. The bucket is the controller: its level sinks
/// until those are denied who have spent most. The logarithm makes a step the same for small shares and
/// large ones. `random` returns a number below 1: a step is too coarse, and right on average.
fn priority(
    policy: &Policy,
    filling: &Filling,
    cost: Cost,
    seen: &Seen,
    weight: f64,
    random: impl FnOnce() -> f64,
) -> Priority {
    let (burst, units) = (policy.quota_ref().burst().max(1), cost.units());
    // A step is a unit and a percent at least.
    let steps = burst.min(100);
    let alone = (steps * KEPT_ALONE / 100) as f64;
    let steps = steps as f64;
    let step = burst as f64 / steps;
    let others = (seen.customers - 1.0 - NOBODY).clamp(0.0, 1.0);
    let kept = alone + (steps * KEPT_MOST - alone) * others;
    let bunch = (kept * seen.share).max(alone.min(units as f64 / step));
    let beyond = (seen.ahead + units as f64) / step - bunch;
    if beyond <= 0.0 {
        return Priority::CRITICAL;
    }
    let left = if beyond > alone && kept > alone {
        let heavy = (seen.spent() / weight).ln_1p() / filling.whole().ln_1p();
        beyond.min(alone + (kept - alone) * heavy.min(1.0))
    } else {
        beyond.min(alone)
    };
    let left = (left + random()).floor().min(steps - 1.0);
    // A cost that fits the burst is denied at the worst. A check of a lower priority would fail.
    let fits = units.saturating_sub(1).saturating_mul(100) / burst + 1;
    let left = (left * 100.0 / steps).ceil() as u8;
    Priority::percent((100 - left).max(fits.min(100) as u8).max(1))
}

/// Refuses policies under which shares cannot be fair.
pub(super) fn refuse(policies: &PolicySet) -> Result<(), Error> {
    refuse_leased(policies)?;
    for policy in policies.iter().filter(|policy| policy.is_ranked()) {
        let (name, algorithm) = (policy.name(), policy.algorithm());
        let burst = policy.quota_ref().burst();
        // Those that leave most keep what is added at once, so that no filling is lost.
        let least = policy.quota_ref().amount().saturating_mul(5).div_ceil(2);
        let refused = if !algorithm.has_burst() {
            format!("a bucket, and policy {name} is a {algorithm}")
        } else if algorithm == Algorithm::IntervalBucket && burst < least {
            format!(
                "a burst of {least} units or more in an interval bucket, and policy {name} has {burst}"
            )
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
    /// Counts a decision for the share of the customer that asked.
    #[inline]
    pub(super) fn count_share(&self, check: Check<'_>, decision: &Decision) {
        if let Some(shares) = &self.fair_shares {
            shares.decided(check, decision);
        }
    }
}
