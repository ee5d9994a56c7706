//! The units that a request spends from each policy, in the order of the set.

use std::sync::Arc;

use super::Cost;
use crate::policy::MAX_POLICIES;

/// The cost for each policy of a set. The places behind the last policy are zero.
pub(crate) type EachCost = Arc<[Cost; MAX_POLICIES]>;

/// Holds the units that a request spends from each policy of a set.
///
/// Nearly every request has one cost for all policies. Such a charge needs no allocation.
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
        Self { cost: greatest, each: (!is_same).then(|| Arc::new(each)) }
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
        self.each.and_then(|each| each.get(at)).copied().unwrap_or(self.cost)
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
