//! The charges of a growing reservation: once at the start, and with each slice.
//! See `account.rs` for what was counted of it.

use smallvec::SmallVec;
use tollgate_model::raw::{Cascade, CostsParts, DecisionParts};

use crate::{Algorithm, Cost, Costs, Decision, Error, Policy, PolicySet};

/// The costs of a growing reservation, with a cost for each policy by its name. Policies that cascade
/// have no name here, and their costs are the sum.
#[derive(Debug)]
pub(super) struct GrowthPlan {
    /// The costs that are charged once.
    base: Costs,
    slice: Costs,
    /// Both together: what the first slice is charged.
    first: Costs,
    /// The units of a slice.
    units: u64,
}

/// The charge of a decision on one policy, or on all together that cascade: these have no name.
struct Part<'a> {
    name: Option<&'a str>,
    charged: u64,
}

impl GrowthPlan {
    /// Joins an estimate with a slice.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), with the name of what cannot be combined.
    pub(super) fn try_new(
        policies: &PolicySet,
        estimate: &Costs,
        slice: &Costs,
    ) -> Result<Self, Error> {
        let cascades = slice.cascades();
        if estimate.cascades() != cascades {
            return Err(Error::config(format!(
                "an estimate and its slices must cascade together, got {estimate:?} and {slice:?}"
            )));
        }
        let charge = estimate.estimate(policies)?;
        // A policy that the slice does not name does not grow.
        slice.clone().or(Cost::ZERO).estimate(policies)?;
        let is_whole = charge.borrow().cascade() == Some(Cascade::Whole);
        let others = |units| {
            let costs = match cascades {
                true if is_whole => Costs::cascading(units).undivided(),
                true => Costs::cascading(units),
                false => Costs::new(Cost::ZERO),
            };
            costs
                .with_priority(estimate.priority())
                .with_customer(estimate.customer())
        };
        let (base, units) = (units(estimate.others()), units(slice.others()));
        let mut plan = Self {
            base: others(base),
            slice: others(units),
            first: others(base.saturating_add(units)),
            units: 0,
        };
        for policy in policies.iter() {
            plan.add(policy, estimate, slice)?;
        }
        match plan.units {
            0 => Err(Error::config("a slice must have at least one unit, got 0")),
            _ => Ok(plan),
        }
    }

    /// Adds the costs of a policy.
    fn add(&mut self, policy: &Policy, estimate: &Costs, slice: &Costs) -> Result<(), Error> {
        let name = policy.name();
        if !slice.cascades() {
            let base = units(estimate.cost_of(name));
            return self.add_named(policy, base, units(slice.cost_of(name)));
        }
        match (estimate.own_of(policy), slice.own_of(policy)) {
            (None, None) => self.grow(policy, units(slice.others())),
            (base, own) => self.add_named(policy, units(base), units(own)),
        }
    }

    fn add_named(&mut self, policy: &Policy, base: u64, slice: u64) -> Result<(), Error> {
        self.grow(policy, slice)?;
        for (costs, units) in [
            (&mut self.base, base),
            (&mut self.slice, slice),
            (&mut self.first, base.saturating_add(slice)),
        ] {
            *costs = costs.clone().with(policy.name().to_owned(), units);
        }
        Ok(())
    }

    /// Notes that each slice charges so many units on this policy.
    fn grow(&mut self, policy: &Policy, units: u64) -> Result<(), Error> {
        let name = policy.name();
        let refused = match policy.algorithm() {
            _ if units == 0 => return Ok(()),
            Algorithm::LeakyBucket => "is a leaky bucket, for whose turns a stream cannot wait",
            Algorithm::Lockout { .. } => "is a lockout, which counts failures",
            _ if self.units > 0 && self.units != units => {
                return Err(Error::config(format!(
                    "a slice must have one number of units, got {}, and {units} for policy {name:?}",
                    self.units
                )));
            }
            _ => {
                self.units = units;
                return Ok(());
            }
        };
        Err(Error::config(format!(
            "policy {name:?} cannot grow: it {refused}"
        )))
    }

    /// Returns the units of a slice.
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// Returns what a slice is charged. The first one, of the number 0, is charged the estimate too.
    pub(super) fn costs(&self, number: u64) -> &Costs {
        match number {
            0 => &self.first,
            _ => &self.slice,
        }
    }

    /// Returns how many units of a slice a decision has charged. Fewer than those of the slice, if it
    /// was cut to a burst.
    pub(super) fn granted(&self, number: u64, decision: &Decision) -> u64 {
        let growing = self.parts(decision).into_iter();
        let growing = growing.filter(|part| self.grows(part.name));
        let granted = growing.map(|part| part.charged.saturating_sub(self.base(number, &part)));
        granted.min().unwrap_or(0).min(self.units)
    }

    /// Returns the final costs of a slice of which `used` units were counted. `None` when these are
    /// what was charged. No cost is above that. A slice that `keeps` no estimate gives it back.
    pub(super) fn settled(
        &self,
        number: u64,
        decision: &Decision,
        used: u64,
        keeps_estimate: bool,
    ) -> Option<Costs> {
        let parts = self.parts(decision);
        let spent = |part: &Part<'_>| {
            let base = if keeps_estimate {
                self.base(number, part)
            } else {
                0
            };
            let used = if self.grows(part.name) { used } else { 0 };
            base.saturating_add(used).min(part.charged)
        };
        let is_less = parts.iter().any(|part| spent(part) < part.charged);
        let (others, named): (Vec<_>, Vec<_>) = parts.iter().partition(|part| part.name.is_none());
        let others = Costs::new(Cost::new(others.into_iter().map(spent).sum()));
        let costs = named.into_iter().fold(others, |costs, part| {
            costs.with(part.name.unwrap_or_default().to_owned(), spent(part))
        });
        is_less.then_some(costs)
    }

    /// Returns whether a policy is charged slices: by its name, or all that cascade.
    pub(super) fn grows(&self, name: Option<&str>) -> bool {
        name.is_none_or(|name| units(self.slice.cost_of(name)) > 0)
    }

    /// Returns the units of the estimate on this part. Only the first slice is charged it.
    fn base(&self, number: u64, part: &Part<'_>) -> u64 {
        match part.name {
            _ if number > 0 => 0,
            Some(name) => units(self.base.cost_of(name)),
            None => units(self.base.others()),
        }
    }

    fn parts<'a>(&self, decision: &'a Decision) -> SmallVec<[Part<'a>; 4]> {
        let (mut parts, mut sum) = (SmallVec::new(), None);
        for (at, policy) in decision.policies().iter().enumerate() {
            let charged = decision.charge().of(at).units();
            match self.slice.cascades() && self.slice.own_of(policy).is_none() {
                true => *sum.get_or_insert(0) += charged,
                false => parts.push(Part {
                    name: Some(policy.name()),
                    charged,
                }),
            }
        }
        parts.extend(sum.map(|charged| Part {
            name: None,
            charged,
        }));
        parts
    }
}

fn units(cost: Option<Cost>) -> u64 {
    cost.map_or(0, Cost::units)
}
