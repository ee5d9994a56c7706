//! The units that a request spends from each policy, in the order of the set.

use std::sync::Arc;

use super::{Ask, Ceiling, Cost};
use crate::model::policy::MAX_POLICIES;

/// What a request spends from each policy of a set, and the ceilings under which it does. The places behind the last
/// policy are zero.
pub(crate) type EachCost = Arc<Each>;

/// Holds what few requests have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Each {
    costs: [Cost; MAX_POLICIES],
    ceilings: Option<[Ceiling; MAX_POLICIES]>,
}

/// Holds the units that a request spends from each policy of a set, and the ceiling for each.
///
/// Nearly every request has one cost for all policies, and no ceilings. Such a charge needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The cost for every policy. The greatest one, when they differ.
    cost: Cost,
    each: Option<EachCost>,
}

/// Borrows a charge.
#[derive(Clone, Copy)]
pub(crate) struct ChargeRef<'a> {
    pub(crate) cost: Cost,
    pub(crate) each: Option<&'a EachCost>,
}

impl Charge {
    /// Creates a charge from the cost for each policy.
    pub(crate) fn each(costs: impl IntoIterator<Item = Cost>) -> Self {
        let mut each = [Cost::ZERO; MAX_POLICIES];
        let (mut count, mut greatest, mut is_same) = (0, Cost::ZERO, true);
        for (place, cost) in each.iter_mut().zip(costs) {
            is_same &= count == 0 || cost == greatest;
            (*place, greatest, count) = (cost, greatest.max(cost), count + 1);
        }
        Self { cost: greatest, each: (!is_same).then(|| Arc::new(Each { costs: each, ceilings: None })) }
    }

    /// Returns the same charge under a ceiling for each policy.
    pub(crate) fn under(&self, ceilings: impl IntoIterator<Item = Ceiling>) -> Self {
        let mut each = [Ceiling::default(); MAX_POLICIES];
        each.iter_mut().zip(ceilings).for_each(|(place, ceiling)| *place = ceiling);
        let costs = self.each.as_ref().map_or([self.cost; MAX_POLICIES], |each| each.costs);
        Self { cost: self.cost, each: Some(Arc::new(Each { costs, ceilings: Some(each) })) }
    }

    /// Returns the same charge under the ceilings of another charge on the same policies, if that has any.
    #[cfg(feature = "redis")]
    pub(crate) fn under_those_of(self, other: ChargeRef<'_>) -> Self {
        match other.each.and_then(|each| each.ceilings) {
            Some(ceilings) => self.under(ceilings),
            None => self,
        }
    }

    pub(crate) fn borrow(&self) -> ChargeRef<'_> {
        ChargeRef { cost: self.cost, each: self.each.as_ref() }
    }
}

impl From<Cost> for Charge {
    fn from(cost: Cost) -> Self {
        Self { cost, each: None }
    }
}

impl<'a> ChargeRef<'a> {
    /// Returns the cost for the policy at this place of the set.
    #[inline]
    pub(crate) fn of(self, at: usize) -> Cost {
        self.each.and_then(|each| each.costs.get(at)).copied().unwrap_or(self.cost)
    }

    /// Returns the ceiling for the policy at this place of the set. `None` for a check that has none.
    #[inline]
    pub(crate) fn ceiling(self, at: usize) -> Option<Ceiling> {
        self.each?.ceilings.as_ref()?.get(at).copied()
    }

    /// Returns what the policy at this place of the set is asked for.
    #[inline]
    pub(crate) fn ask(self, at: usize) -> Ask {
        Ask { cost: self.of(at).units(), ceiling: self.ceiling(at) }
    }

    /// Returns whether there is a ceiling for each policy.
    #[inline]
    pub(crate) fn is_capped(self) -> bool {
        self.each.is_some_and(|each| each.ceilings.is_some())
    }

    /// Returns the cost for each of `count` policies.
    #[inline]
    pub(crate) fn iter(self, count: usize) -> impl Iterator<Item = Cost> + use<'a> {
        (0..count).map(move |at| self.of(at))
    }

    /// Returns the charge with each cost cut to that of another charge on the same policies.
    pub(crate) fn at_most(self, other: ChargeRef<'_>, policies: usize) -> Charge {
        match (self.each, other.each) {
            (None, None) => self.cost.min(other.cost).into(),
            _ => Charge::each(self.iter(policies).zip(other.iter(policies)).map(|(cost, most)| cost.min(most))),
        }
    }

    /// Returns the charge without ceilings.
    #[cfg(feature = "redis")]
    pub(crate) fn uncapped(self) -> Charge {
        match self.each {
            Some(each) if each.ceilings.is_some() => Charge::each(each.costs),
            _ => self.to_owned(),
        }
    }

    pub(crate) fn to_owned(self) -> Charge {
        Charge { cost: self.cost, each: self.each.cloned() }
    }
}

impl From<Cost> for ChargeRef<'_> {
    #[inline]
    fn from(cost: Cost) -> Self {
        Self { cost, each: None }
    }
}

impl PartialEq<ChargeRef<'_>> for Charge {
    #[inline]
    fn eq(&self, other: &ChargeRef<'_>) -> bool {
        self.cost == other.cost && self.each.as_ref() == other.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_costs_are_one_cost() {
        let [zero, one, two] = [Cost::ZERO, Cost::ONE, Cost::new(2)];
        assert_eq!(Charge::each([two, two, two]), Charge::from(two));
        assert_eq!(Charge::each([zero, zero]), Charge::from(zero));
        for costs in [[one, two], [two, one], [zero, one], [one, zero]] {
            let charge = Charge::each(costs);
            assert_eq!(charge.borrow().iter(2).collect::<Vec<_>>(), costs);
            assert_eq!(charge.borrow().cost, costs[0].max(costs[1]));
            assert_ne!(charge, Charge::from(charge.borrow().cost));
        }
    }
}
