//! Names what a check asks a store to charge: the units for each policy, and their ceilings.
//! What users ask for, by the names of policies, is in `cost.rs`, and becomes a charge there.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::cost::Cost;
use crate::{Customer, Policy, Priority, Quota, policy::MAX_POLICIES};

/// Shares the cost of a request for each policy of a set, and the ceilings under which it is
/// charged. The places behind the last policy are zero.
pub type EachCost = Arc<Each>;

/// The ceilings of the policies of a set, in its order.
pub type Ceilings = SmallVec<[Ceiling; 2]>;

/// Names what few requests have.
#[derive(Clone, Debug)]
pub struct Each {
    costs: [Cost; MAX_POLICIES],
    ceilings: Option<Ceilings>,
    /// The customer that spends, under fair shares.
    spender: Option<Spender>,
    /// Policies are spent one after the other. Each has the whole cost until a store has divided
    /// it.
    cascade: Option<Cascade>,
    /// The places of the policies beside these, which are charged a cost of their own in full: a bit
    /// for each.
    beside: u8,
    /// The number of a commit, by which a store knows it again. 0 for everything else.
    number: u64,
}

/// Says who spends, and of what.
#[derive(Clone, Debug)]
pub struct Spender {
    /// The customer.
    pub customer: Customer,
    /// Its accounts, one for each policy that is shared fairly.
    pub accounts: SmallVec<[Account; 1]>,
    /// Is true while the customer is hardly counted for one of them.
    pub is_new: bool,
}

/// Says where the units are counted that a customer spends of one state, and what the check found
/// there that changes slowly, so that it is not looked up again for the decision.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// The place of the policy in the set.
    pub at: usize,
    /// The number of the state.
    pub state: u64,
    /// The number of the customer, who spends of this state.
    pub spender: u64,
    /// The time of the check in microseconds.
    pub now: u64,
    /// The weights of all customers.
    pub weights: f64,
    /// The units that the customer has spent lately in other processes.
    pub elsewhere: f64,
    /// The units that its share gives it in a microsecond.
    pub back_per_us: f64,
    /// The burst of the policy.
    pub burst: f64,
}

/// Says how a cost is divided over policies that are spent one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cascade {
    /// Each policy gives what it has left, until the cost is covered.
    Split,
    /// The first policy that covers all of the cost gives it.
    Whole,
}

impl Cascade {
    /// Divides a cost over what the policies have left. Where they do not cover it, each gets what it
    /// would have to give beside the others, which is more than it has.
    pub(crate) fn divide(self, cost: u64, left: impl Iterator<Item = u64>) -> Vec<Cost> {
        let mut uncovered = cost;
        let share = |left: u64| {
            let share = match self {
                Self::Whole if left < uncovered => 0,
                _ => left.min(uncovered),
            };
            uncovered -= share;
            share
        };
        let shares: Vec<u64> = left.map(share).collect();
        shares
            .into_iter()
            .map(|share| Cost::new(share + uncovered))
            .collect()
    }

    /// Returns the most units that policies of these amounts give together.
    pub(crate) fn most(self, amounts: impl Iterator<Item = u64>) -> u64 {
        match self {
            Self::Split => amounts.fold(0, u64::saturating_add),
            Self::Whole => amounts.max().unwrap_or(0),
        }
    }
}

impl Each {
    fn of(costs: [Cost; MAX_POLICIES]) -> Self {
        Self {
            costs,
            ceilings: None,
            spender: None,
            cascade: None,
            beside: 0,
            number: 0,
        }
    }
}

impl PartialEq for Each {
    /// Compares what the store is asked. It does not know who spends.
    fn eq(&self, other: &Self) -> bool {
        self.costs == other.costs
            && self.ceilings == other.ceilings
            && self.cascade == other.cascade
            && self.beside == other.beside
    }
}

impl Eq for Each {}

/// The units that a request spends from each policy of a set, and the ceiling for each.
///
/// Nearly every request has one cost for all policies, and no ceilings. Such a charge needs no
/// allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The cost for every policy. The greatest one, when they differ.
    cost: Cost,
    each: Option<EachCost>,
}

/// Borrows a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeRef<'a> {
    /// The cost for every policy. The greatest one, when they differ.
    pub cost: Cost,
    /// The parts that few charges have: costs that differ, ceilings, a cascade.
    pub each: Option<&'a EachCost>,
}

impl Charge {
    /// Creates a charge from the cost for each policy.
    pub fn each(costs: impl IntoIterator<Item = Cost>) -> Self {
        let mut each = [Cost::ZERO; MAX_POLICIES];
        let (mut count, mut greatest, mut is_same) = (0, Cost::ZERO, true);
        for (place, cost) in each.iter_mut().zip(costs) {
            is_same &= count == 0 || cost == greatest;
            (*place, greatest, count) = (cost, greatest.max(cost), count + 1);
        }
        Self {
            cost: greatest,
            each: (!is_same).then(|| Arc::new(Each::of(each))),
        }
    }

    /// Creates a charge that a store divides over the policies that have no cost in `own`. The others
    /// are charged their own in full.
    pub(crate) fn cascading(
        cost: Cost,
        cascade: Cascade,
        own: impl IntoIterator<Item = Option<Cost>>,
    ) -> Self {
        let mut each = Each {
            cascade: Some(cascade),
            ..Each::of([cost; MAX_POLICIES])
        };
        for (at, own) in own.into_iter().enumerate() {
            if let Some(own) = own {
                each.costs[at] = own;
                each.beside |= 1 << at;
            }
        }
        Self {
            cost,
            each: Some(Arc::new(each)),
        }
    }

    /// Returns the same charge under a ceiling for each policy.
    #[must_use]
    pub fn under(&self, ceilings: impl IntoIterator<Item = Ceiling>) -> Self {
        let mut each = Ceilings::new();
        ceilings.into_iter().for_each(|ceiling| each.push(ceiling));
        let spender = self.each.as_ref().and_then(|each| each.spender.clone());
        self.spent_by(each, spender)
    }

    /// Returns the same charge under a ceiling for each policy, with who spends.
    #[must_use]
    pub fn spent_by(&self, ceilings: Ceilings, spender: Option<Spender>) -> Self {
        let of_each = self.each.as_deref();
        Self {
            cost: self.cost,
            each: Some(Arc::new(Each {
                costs: of_each.map_or([self.cost; MAX_POLICIES], |each| each.costs),
                ceilings: Some(ceilings),
                spender,
                cascade: of_each.and_then(|each| each.cascade),
                beside: of_each.map_or(0, |each| each.beside),
                number: 0,
            })),
        }
    }

    /// Returns the same charge under the ceilings of another charge on the same policies, if that
    /// has any.
    pub(crate) fn under_those_of(self, other: ChargeRef<'_>) -> Self {
        match other.each.and_then(|each| each.ceilings.as_ref()) {
            Some(ceilings) => self.under(ceilings.iter().copied()),
            None => self,
        }
    }

    /// Returns the part that few charges have.
    pub(crate) fn into_each(self) -> Option<EachCost> {
        self.each
    }

    /// Borrows the charge.
    #[must_use]
    pub fn borrow(&self) -> ChargeRef<'_> {
        ChargeRef {
            cost: self.cost,
            each: self.each.as_ref(),
        }
    }
}

impl From<Cost> for Charge {
    fn from(cost: Cost) -> Self {
        Self { cost, each: None }
    }
}

impl<'a> ChargeRef<'a> {
    /// Returns whether the charge is one cost for all policies, without ceilings.
    #[must_use]
    #[inline]
    pub fn is_plain(self) -> bool {
        self.each.is_none()
    }

    /// Returns the cost for the policy at this place of the set.
    #[inline]
    #[must_use]
    pub fn of(self, at: usize) -> Cost {
        self.each
            .and_then(|each| each.costs.get(at))
            .copied()
            .unwrap_or(self.cost)
    }

    /// Returns the ceiling for the policy at this place of the set. `None` for a check that has
    /// none.
    #[inline]
    #[must_use]
    pub fn ceiling(self, at: usize) -> Option<Ceiling> {
        self.each?.ceilings.as_ref()?.get(at).copied()
    }

    /// Returns what the policy at this place of the set is asked for.
    #[inline]
    #[must_use]
    pub fn ask(self, at: usize) -> Ask {
        Ask {
            cost: self.of(at).units(),
            ceiling: self.ceiling(at),
        }
    }

    /// Returns whether there is a ceiling for each policy.
    #[inline]
    #[must_use]
    pub fn is_capped(self) -> bool {
        self.each.is_some_and(|each| each.ceilings.is_some())
    }

    /// Returns who spends under fair shares. `None` for most checks.
    #[must_use]
    pub fn spender(self) -> Option<&'a Spender> {
        self.each?.spender.as_ref()
    }

    /// Returns this charge as that of the commit with this number.
    #[must_use]
    pub fn numbered(self, number: u64) -> Charge {
        let costs = std::array::from_fn(|at| self.of(at));
        Charge {
            cost: self.cost,
            each: Some(Arc::new(Each {
                number,
                ..Each::of(costs)
            })),
        }
    }

    /// Returns the number of a commit, if it has one.
    #[must_use]
    pub fn number(self) -> Option<u64> {
        let number = self.each?.number;
        (number > 0).then_some(number)
    }

    /// Returns how a store divides the charge, if policies are spent one after the other.
    #[must_use]
    #[inline]
    pub fn cascade(self) -> Option<Cascade> {
        self.each?.cascade
    }

    /// Returns whether the policy at this place of the set is charged a cost of its own, beside those
    /// that are spent one after the other.
    #[must_use]
    pub fn is_beside(self, at: usize) -> bool {
        self.each.is_some_and(|each| each.beside >> at & 1 > 0)
    }

    /// Returns this charge as a store has divided it: at the cost for each policy.
    pub fn divided(self, costs: impl IntoIterator<Item = Cost>) -> Charge {
        let charge = Charge::each(costs);
        let Some(each) = self.each.filter(|each| each.cascade.is_some()) else {
            return charge.under_those_of(self);
        };
        let costs = std::array::from_fn(|at| charge.borrow().of(at));
        Charge {
            cost: self.cost,
            each: Some(Arc::new(Each {
                costs,
                ..Each::clone(each)
            })),
        }
    }

    /// Divides this charge over what each policy has left. Those beside the cascade keep their costs.
    #[must_use]
    pub fn divided_over(self, cascade: Cascade, left: &[u64]) -> Charge {
        let each = left.iter().enumerate();
        let divided = each.filter(|&(at, _)| !self.is_beside(at));
        let shares = cascade.divide(self.cost.units(), divided.map(|(_, &left)| left));
        let mut shares = shares.into_iter();
        self.divided((0..left.len()).map(|at| match self.is_beside(at) {
            true => self.of(at),
            false => shares.next().unwrap_or_default(),
        }))
    }

    /// Returns the final cost for each of `count` policies when `total` units were spent of a charge
    /// that a store has divided. The policies that were spent last get units back first, and what
    /// was spent beyond the charge is owed by the last one. Those beside the cascade have the final
    /// costs of `beside`.
    pub(crate) fn settled_at(self, total: Cost, beside: ChargeRef<'_>, count: usize) -> Charge {
        let (mut rest, mut last) = (total.units(), None);
        let spent = (0..count).map(|at| {
            if self.is_beside(at) {
                return beside.of(at).units();
            }
            let spent = self.of(at).units().min(rest);
            (rest, last) = (rest - spent, Some(at));
            spent
        });
        let mut spent: SmallVec<[u64; MAX_POLICIES]> = spent.collect();
        if let Some(last) = last {
            spent[last] += rest;
        }
        Charge::each(spent.into_iter().map(Cost::new))
    }

    /// Returns the units that come back from each of `count` policies when `units` do of a charge that
    /// a store has divided, and those of `beside` from the policies beside the cascade.
    pub(crate) fn given_back(self, units: Cost, beside: ChargeRef<'_>, count: usize) -> Charge {
        let divided = (0..count).filter(|&at| !self.is_beside(at));
        let held: u64 = divided.map(|at| self.of(at).units()).sum();
        let spent = held.saturating_sub(units.units());
        let spent = self.settled_at(Cost::new(spent), self, count);
        Charge::each((0..count).map(|at| match self.is_beside(at) {
            true => beside.of(at).min(self.of(at)),
            false => Cost::new(self.of(at).units() - spent.borrow().of(at).units()),
        }))
    }

    /// Returns the cost for each of `count` policies.
    #[inline]
    pub fn iter(self, count: usize) -> impl Iterator<Item = Cost> + use<'a> {
        (0..count).map(move |at| self.of(at))
    }

    /// Returns the charge with each cost cut to another charge on the same policies.
    pub(crate) fn at_most(self, other: ChargeRef<'_>, policies: usize) -> Charge {
        match (self.each, other.each) {
            (None, None) => self.cost.min(other.cost).into(),
            _ => Charge::each(
                self.iter(policies)
                    .zip(other.iter(policies))
                    .map(|(cost, most)| cost.min(most)),
            ),
        }
    }

    /// Returns the charge without its ceilings.
    #[must_use]
    pub fn uncapped(self) -> Charge {
        match self.each {
            Some(each) if each.ceilings.is_some() => Charge::each(each.costs),
            _ => self.to_owned(),
        }
    }

    /// Copies the charge.
    #[must_use]
    pub fn to_owned(self) -> Charge {
        Charge {
            cost: self.cost,
            each: self.each.cloned(),
        }
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
        self.borrow() == *other
    }
}

/// A limit on what may be spent from a policy after a check, instead of its burst.
///
/// A [`Priority`] and [`CheckBuilder::wait`] set ceilings. Only
/// an implementation of [`Store`] reads them: see
/// [`Check::ceiling_of`].
///
/// A check with a ceiling fits when the units that are then spent above [`units`](Self::units)
/// return within [`wait`](Self::wait). So a ceiling below the burst leaves units for other checks.
/// A ceiling with a wait lets the check spend units that have not accrued yet, up to 8 bursts in
/// all: a debt that every other check sees. The stored state is the same under every ceiling.
///
/// [`CheckBuilder::wait`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.CheckBuilder.html#method.wait
/// [`Store`]: https://docs.rs/tollgate/latest/tollgate/trait.Store.html
/// [`Check::ceiling_of`]: https://docs.rs/tollgate/latest/tollgate/store/struct.Check.html#method.ceiling_of
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    units: u64,
    wait_us: u64,
    /// The priority whose share the units are.
    share: Option<Priority>,
}

impl Ceiling {
    /// Returns the units that may be spent after the check.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns the time within which units that are spent beyond [`units`](Self::units) return.
    /// Only a bucket has such a time.
    #[must_use]
    pub fn wait(&self) -> Duration {
        Duration::from_micros(self.wait_us)
    }

    /// Returns the same ceiling for a policy of this burst: a priority has its share of it.
    pub(crate) fn cut(self, burst: u64) -> Self {
        let most = self
            .share
            .map_or(burst, |priority| priority.units_of(burst));
        Self {
            units: self.units.min(most),
            ..self
        }
    }
}

/// Names what a check asks of one policy: the units, and the ceiling under which it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The units.
    pub cost: u64,
    /// The ceiling, if there is one.
    pub ceiling: Option<Ceiling>,
}

impl Ask {
    /// Returns the same ask if it was denied. An ask that was not denied asks for nothing more.
    #[must_use]
    pub fn denied_unless(self, fits: bool) -> Self {
        if fits { 0.into() } else { self }
    }

    /// Returns the units that may be spent from a policy of this burst.
    #[inline]
    pub(crate) fn limit(&self, burst: u64) -> u64 {
        self.ceiling.map_or(burst, |ceiling| ceiling.units)
    }

    /// Returns the units of this burst that are left to higher priorities.
    pub(crate) fn kept(&self, burst: u64) -> u64 {
        let share = self.ceiling.and_then(|ceiling| ceiling.share);
        share.map_or(0, |priority| burst - priority.units_of(burst))
    }

    /// Returns the time within which units beyond the limit have to return, in microseconds.
    pub(crate) fn wait_us(&self) -> u64 {
        self.ceiling.map_or(0, |ceiling| ceiling.wait_us)
    }
}

impl From<u64> for Ask {
    #[inline]
    fn from(cost: u64) -> Self {
        Self {
            cost,
            ceiling: None,
        }
    }
}

/// Makes ceilings.
pub trait CeilingParts: Sized {
    /// Creates a ceiling at which at most `units` are spent.
    fn units_of(units: u64) -> Self;

    /// Creates the ceiling of a priority for a policy.
    fn share_of(priority: Priority, policy: &Policy) -> Self;

    /// Returns the same ceiling, which what is spent above it may exceed for `wait_us`
    /// microseconds.
    fn within_us(self, wait_us: u64) -> Self;

    /// Returns the ceiling that is reached first in a queue of this quota, with its share.
    fn lower_of(self, other: Self, quota: &Quota) -> Self;
}

impl CeilingParts for Ceiling {
    #[inline]
    fn units_of(units: u64) -> Self {
        Self {
            units,
            wait_us: 0,
            share: None,
        }
    }

    fn share_of(priority: Priority, policy: &Policy) -> Self {
        let share = policy.is_ranked().then_some(priority);
        Self {
            units: priority.units_of_policy(policy),
            wait_us: 0,
            share,
        }
    }

    #[inline]
    fn within_us(self, wait_us: u64) -> Self {
        Self { wait_us, ..self }
    }

    fn lower_of(self, other: Self, quota: &Quota) -> Self {
        let end_us = |ceiling: Self| quota.span(ceiling.units).0.saturating_add(ceiling.wait_us);
        if end_us(self) <= end_us(other) {
            self
        } else {
            Self {
                share: self.share,
                ..other
            }
        }
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
