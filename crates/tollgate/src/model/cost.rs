use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::model::quota::MAX_EXACT;
use crate::{
    Algorithm, Customer, Error, Policy, PolicySet, Priority, Quota, model::policy::MAX_POLICIES,
};

/// The number of units that one request spends from every policy. [`Costs`] names a cost for each
/// policy.
///
/// A cost of `c` spends as much as `c` requests of [`Cost::ONE`] at the same instant. It is charged
/// as a whole or not at all. A cost above the burst of a policy can never fit and is an
/// [error](crate::ErrorKind::CostExceedsBurst), not a denial. A cost of zero changes nothing: see
/// [`Limiter::peek`](crate::Limiter::peek).
///
/// Bursts are at most 999 999 999 999 999, so a greater cost never fits.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
///
/// assert_eq!(Cost::default(), Cost::ONE);
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("rows", Quota::per_hour(100)));
/// let decision = limiter.check("acme").cost(Cost::new(25)).await?;
/// assert_eq!(decision.state("rows").unwrap().remaining(), 75);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// Spends nothing: the check is a peek.
    pub const ZERO: Self = Self(0);
    /// Spends one unit: the default cost of a request.
    pub const ONE: Self = Self(1);

    /// Creates a cost of `units`.
    #[must_use]
    pub const fn new(units: u64) -> Self {
        Self(units)
    }

    /// Returns the number of units.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Returns the units as a number of a script. A greater cost than any state holds is cut to the
    /// greatest integer that a double represents exactly. Only a refund may have such a cost.
    pub(crate) fn number(self) -> f64 {
        self.0.min(MAX_EXACT - 1) as f64
    }
}

impl Default for Cost {
    /// Returns [`Cost::ONE`].
    fn default() -> Self {
        Self::ONE
    }
}

impl From<u32> for Cost {
    fn from(units: u32) -> Self {
        Self(units.into())
    }
}

impl From<u64> for Cost {
    fn from(units: u64) -> Self {
        Self(units)
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cost({})", self.0)
    }
}

/// The cost of a request for each policy of a set, and the ceilings under which it is
/// charged. The places behind the last policy are zero.
pub(crate) type EachCost = Arc<Each>;

/// What few requests have.
#[derive(Clone, Debug)]
pub(crate) struct Each {
    costs: [Cost; MAX_POLICIES],
    ceilings: Option<[Ceiling; MAX_POLICIES]>,
    /// Who spends from each policy under [fair shares](crate::LimiterBuilder::fair_shares). 0 for
    /// nobody.
    spenders: Option<Box<[u64; MAX_POLICIES]>>,
    /// The policies are spent one after the other. Each has the whole cost until a store has divided
    /// it.
    cascade: Option<Cascade>,
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

impl PartialEq for Each {
    /// Compares what the store is asked. It does not know who spends.
    fn eq(&self, other: &Self) -> bool {
        self.costs == other.costs
            && self.ceilings == other.ceilings
            && self.cascade == other.cascade
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
#[derive(Clone, Copy, Debug)]
pub struct ChargeRef<'a> {
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
        Self {
            cost: greatest,
            each: (!is_same).then(|| {
                Arc::new(Each {
                    costs: each,
                    ceilings: None,
                    spenders: None,
                    cascade: None,
                })
            }),
        }
    }

    /// Creates a charge that a store divides.
    pub(crate) fn cascading(cost: Cost, cascade: Cascade) -> Self {
        Self {
            cost,
            each: Some(Arc::new(Each {
                costs: [cost; MAX_POLICIES],
                ceilings: None,
                spenders: None,
                cascade: Some(cascade),
            })),
        }
    }

    /// Returns the same charge under a ceiling for each policy.
    pub(crate) fn under(&self, ceilings: impl IntoIterator<Item = Ceiling>) -> Self {
        let mut each = [Ceiling::default(); MAX_POLICIES];
        each.iter_mut()
            .zip(ceilings)
            .for_each(|(place, ceiling)| *place = ceiling);
        let of_each = self.each.as_deref();
        Self {
            cost: self.cost,
            each: Some(Arc::new(Each {
                costs: of_each.map_or([self.cost; MAX_POLICIES], |each| each.costs),
                ceilings: Some(each),
                spenders: of_each.and_then(|each| each.spenders.clone()),
                cascade: of_each.and_then(|each| each.cascade),
            })),
        }
    }

    /// Returns the same charge, which is under ceilings, with who spends from each policy.
    pub(crate) fn spent_by(mut self, spenders: [u64; MAX_POLICIES]) -> Self {
        if let Some(each) = &mut self.each {
            Arc::make_mut(each).spenders = Some(Box::new(spenders));
        }
        self
    }

    /// Returns the same charge under the ceilings of another charge on the same policies, if that
    /// has any.
    pub(crate) fn under_those_of(self, other: ChargeRef<'_>) -> Self {
        match other.each.and_then(|each| each.ceilings) {
            Some(ceilings) => self.under(ceilings),
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
    /// Returns the cost for the policy at this place of the set.
    #[inline]
    pub(crate) fn of(self, at: usize) -> Cost {
        self.each
            .and_then(|each| each.costs.get(at))
            .copied()
            .unwrap_or(self.cost)
    }

    /// Returns the ceiling for the policy at this place of the set. `None` for a check that has
    /// none.
    #[inline]
    pub(crate) fn ceiling(self, at: usize) -> Option<Ceiling> {
        self.each?.ceilings.as_ref()?.get(at).copied()
    }

    /// Returns what the policy at this place of the set is asked for.
    #[inline]
    pub(crate) fn ask(self, at: usize) -> Ask {
        Ask {
            cost: self.of(at).units(),
            ceiling: self.ceiling(at),
        }
    }

    /// Returns whether there is a ceiling for each policy.
    #[inline]
    pub(crate) fn is_capped(self) -> bool {
        self.each.is_some_and(|each| each.ceilings.is_some())
    }

    /// Returns who spends from each policy under fair shares, and 0 for nobody. `None` for most
    /// checks.
    pub(crate) fn spenders(self) -> Option<&'a [u64; MAX_POLICIES]> {
        self.each?.spenders.as_deref()
    }

    /// Returns how a store divides the charge, if the policies are spent one after the other.
    #[must_use]
    #[inline]
    pub fn cascade(self) -> Option<Cascade> {
        self.each?.cascade
    }

    /// Returns this charge as a store has divided it: at the cost for each policy.
    pub(crate) fn divided(self, costs: impl IntoIterator<Item = Cost>) -> Charge {
        let charge = Charge::each(costs);
        let Some(cascade) = self.cascade() else {
            return charge.under_those_of(self);
        };
        let costs = std::array::from_fn(|at| charge.borrow().of(at));
        Charge {
            cost: self.cost,
            each: Some(Arc::new(Each {
                costs,
                ceilings: None,
                spenders: None,
                cascade: Some(cascade),
            })),
        }
    }

    /// Returns the final cost for each of `count` policies when `total` units were spent of a charge
    /// that a store has divided. The policies that were spent last get units back first, and what
    /// was spent beyond the charge is owed by the last one.
    pub(crate) fn settled_at(self, total: Cost, count: usize) -> Charge {
        let mut rest = total.units();
        let spent = self.iter(count).map(|held| {
            let spent = held.units().min(rest);
            rest -= spent;
            spent
        });
        let mut spent: SmallVec<[u64; MAX_POLICIES]> = spent.collect();
        if let Some(last) = spent.last_mut() {
            *last += rest;
        }
        Charge::each(spent.into_iter().map(Cost::new))
    }

    /// Returns the units that come back from each of `count` policies when `units` do of a charge that
    /// a store has divided.
    pub(crate) fn given_back(self, units: Cost, count: usize) -> Charge {
        let held: u64 = self.iter(count).map(Cost::units).sum();
        let spent = held.saturating_sub(units.units());
        let spent = self.settled_at(Cost::new(spent), count);
        let each = self.iter(count).zip(spent.borrow().iter(count));
        Charge::each(each.map(|(held, spent)| Cost::new(held.units() - spent.units())))
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

    /// Returns the charge without ceilings.
    pub(crate) fn uncapped(self) -> Charge {
        match self.each {
            Some(each) if each.ceilings.is_some() => Charge::each(each.costs),
            _ => self.to_owned(),
        }
    }

    pub(crate) fn to_owned(self) -> Charge {
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
        self.cost == other.cost && self.each.as_ref() == other.each
    }
}

/// Names the units that one request spends from each policy of a set.
///
/// Use it where policies count different things: requests and tokens, uploads and bytes. The
/// request is charged in one atomic step, on all policies or on none.
///
/// A cost of zero leaves a policy unchanged, and the policy does not deny the request.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use tollgate::{Cost, Costs, Limiter, MemoryStore, Policy, Quota};
///
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     [
///         Policy::token_bucket("requests", Quota::per_minute(60)),
///         Policy::token_bucket("tokens", Quota::per_minute(10_000)),
///     ],
/// );
/// let decision = limiter.check("acme").cost([("requests", 1), ("tokens", 850)]).await?;
/// assert_eq!(decision.state("requests").unwrap().remaining(), 59);
/// assert_eq!(decision.state("tokens").unwrap().remaining(), 9_150);
///
/// // The same with a cost for all policies that are not named.
/// let costs = Costs::new(Cost::ONE).with("tokens", Cost::new(9_200));
/// let decision = limiter.check("acme").cost(costs).await?;
/// assert!(decision.is_denied());
/// assert_eq!(decision.state("requests").unwrap().remaining(), 59);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Costs {
    /// The cost for policies without a name here. `None` when every policy must be named.
    others: Option<Cost>,
    named: SmallVec<[(Cow<'static, str>, Cost); 4]>,
    priority: Priority,
    customer: Option<Customer>,
    cascade: Option<Cascade>,
}

impl Costs {
    /// Creates costs of `cost` for all policies.
    #[must_use]
    #[inline]
    pub fn new(cost: Cost) -> Self {
        Self {
            others: Some(cost),
            named: SmallVec::new(),
            priority: Priority::CRITICAL,
            customer: None,
            cascade: None,
        }
    }

    /// Creates costs that the policies of a set pay one after the other, in their order: a plan, then
    /// credits, then the pool of the organisation.
    ///
    /// Each policy gives what it has left, until all `units` are covered. When all together have less,
    /// the request is denied, and none gives anything. It is one step, so two callers never spend
    /// the same unit. [`PolicyState::cost`](crate::limiter::PolicyState::cost) tells what each
    /// policy gave. A commit of less gives back what was spent last first, and one of more is a
    /// debt of the last policy.
    ///
    /// Such costs are [reserved](crate::Limiter::reserve): a check and a peek fail with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config). So does a reservation of a
    /// [priority](Self::with_priority) or of a [customer](Self::with_customer), and one over other
    /// policies than windows with one counter (fixed, calendar, from the first hit), or over leased
    /// ones.
    ///
    /// In a Redis Cluster, the pool lies in the slot of the plan when it is an outer level of its
    /// key, as here.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Costs, Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// const PLAN: Policy = Policy::fixed_window("plan", Quota::per_day(100));
    /// const POOL: Policy = Policy::fixed_window("pool", Quota::per_day(1_000)).at_level(1);
    /// let limiter = Limiter::new(MemoryStore::new(), [PLAN, POOL]);
    ///
    /// let ann = Key::new("acme").child("ann");
    /// let job = limiter.reserve(ann.clone(), Costs::cascading(130)).await?.into_result()?;
    /// let gave = |policy| job.decision().state(policy).unwrap().cost().units();
    /// assert_eq!((gave("plan"), gave("pool")), (100, 30));
    ///
    /// job.commit(110).await?;
    /// let left = limiter.peek(ann).await?;
    /// assert_eq!(left.state("plan").unwrap().remaining(), 0);
    /// assert_eq!(left.state("pool").unwrap().remaining(), 990);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cascading(units: u64) -> Self {
        Self {
            cascade: Some(Cascade::Split),
            ..Self::new(Cost::new(units))
        }
    }

    /// Lets the first policy that covers all of a [cascading](Self::cascading) cost pay it alone, and
    /// the others nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Costs, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let policy = |name| Policy::fixed_window(name, Quota::per_day(100));
    /// let limiter = Limiter::new(MemoryStore::new(), [policy("plan"), policy("credits")]);
    /// for (plan, credits) in [(60, 0), (0, 60)] {
    ///     let job = limiter.reserve("acme", Costs::cascading(60).undivided()).await?.into_result()?;
    ///     let gave = |policy| job.decision().state(policy).unwrap().cost().units();
    ///     assert_eq!((gave("plan"), gave("credits")), (plan, credits));
    /// }
    /// assert!(limiter.reserve("acme", Costs::cascading(60).undivided()).await?.is_denied());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn undivided(mut self) -> Self {
        self.cascade = self.cascade.map(|_| Cascade::Whole);
        self
    }

    /// Returns whether the policies pay one after the other.
    #[must_use]
    pub fn cascades(&self) -> bool {
        self.cascade.is_some()
    }

    /// Sets the cost for the policy with this name.
    #[must_use]
    pub fn with(mut self, policy: impl Into<Cow<'static, str>>, cost: impl Into<Cost>) -> Self {
        let (policy, cost) = (policy.into(), cost.into());
        match self.named.iter_mut().find(|(name, _)| *name == policy) {
            Some((_, held)) => *held = cost,
            None => self.named.push((policy, cost)),
        }
        self
    }

    /// Returns the cost for the policy with this name. `None` when neither the policy nor all
    /// others have a cost.
    ///
    /// ```
    /// use tollgate::{Cost, Costs};
    ///
    /// let costs = Costs::new(Cost::ONE).with("tokens", 850_u64);
    /// assert_eq!((costs.cost_of("tokens"), costs.cost_of("requests")), (Some(Cost::new(850)), Some(Cost::ONE)));
    /// assert_eq!(Costs::from([("tokens", 850)]).cost_of("requests"), None);
    /// ```
    #[must_use]
    pub fn cost_of(&self, policy: &str) -> Option<Cost> {
        let named = self
            .named
            .iter()
            .find(|(held, _)| held == policy)
            .map(|&(_, cost)| cost);
        named.or(self.others)
    }

    /// Sets the priority of the check. A refund and a commit ignore the priority.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Returns the priority of the check. [`Priority::CRITICAL`] by default.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Sets who asks, for a limiter with [fair shares](crate::LimiterBuilder::fair_shares). Others
    /// ignore it, and so do a refund and a commit.
    ///
    /// A check with a customer has no priority of its own.
    #[must_use]
    pub fn with_customer(mut self, customer: impl Into<Option<Customer>>) -> Self {
        self.customer = customer.into();
        self
    }

    /// Returns who asks, if that is known.
    #[must_use]
    pub fn customer(&self) -> Option<Customer> {
        self.customer
    }

    /// Returns the cost of a critical check that asks the same of all policies.
    #[inline]
    pub(crate) fn only(&self) -> Option<Cost> {
        let is_ranked = self.priority != Priority::CRITICAL || self.customer.is_some();
        self.others
            .filter(|_| self.named.is_empty() && !is_ranked && self.cascade.is_none())
    }

    /// Returns the one cost that stands for all policies.
    pub(crate) fn total(&self) -> Option<Cost> {
        self.others.filter(|_| self.named.is_empty())
    }

    /// Returns what a reservation charges on a set: the cost for each policy, or one that a store
    /// divides.
    pub(crate) fn estimate(&self, policies: &PolicySet) -> Result<Charge, Error> {
        let (Some(cascade), Some(cost)) = (self.cascade, self.total()) else {
            return self.charge(policies);
        };
        if self.priority != Priority::CRITICAL {
            return Err(Error::config(format!(
                "costs that cascade have no priority, got {:?}",
                self.priority
            )));
        }
        if let Some(customer) = &self.customer {
            return Err(Error::config(format!(
                "costs that cascade have no customer, got {customer:?}"
            )));
        }
        let has_counter = |policy: &&Policy| match policy.algorithm() {
            Algorithm::FixedWindow | Algorithm::WindowFromFirstHit => !policy.is_leased(),
            #[cfg(feature = "calendar")]
            Algorithm::CalendarWindow { .. } => !policy.is_leased(),
            _ => false,
        };
        match policies.iter().find(|policy| !has_counter(policy)) {
            Some(other) => Err(Error::config(format!(
                "costs cascade over windows with one counter that are not leased, got policy {other:?}"
            ))),
            None if policies.len() == 1 => Ok(cost.into()),
            None => Ok(Charge::cascading(cost, cascade)),
        }
    }

    /// Returns the cost for each policy of a set.
    pub(crate) fn charge(&self, policies: &PolicySet) -> Result<Charge, Error> {
        if self.cascade.is_some() {
            return Err(Error::config(
                "costs that cascade must be those of a reservation, and one cost for all policies",
            ));
        }
        if let (Some(cost), true) = (self.others, self.named.is_empty()) {
            return Ok(cost.into());
        }
        let unknown = |name: &str| policies.iter().all(|policy| policy.name() != name);
        if let Some((name, _)) = self.named.iter().find(|(name, _)| unknown(name)) {
            return Err(Error::config(format!(
                "costs name policy {name:?}, which is not in the set {}",
                names(policies)
            )));
        }
        let cost = |name: &str| {
            self.cost_of(name)
                .ok_or_else(|| Error::config(format!("costs do not name policy {name:?}")))
        };
        let costs: SmallVec<[Cost; 8]> = policies
            .iter()
            .map(|policy| cost(policy.name()))
            .collect::<Result<_, _>>()?;
        Ok(Charge::each(costs))
    }
}

/// Returns the names of all policies of a set.
fn names(policies: &PolicySet) -> String {
    policies
        .iter()
        .map(|policy| policy.name())
        .collect::<Vec<_>>()
        .join(", ")
}

impl From<Cost> for Costs {
    /// Sets one cost for all policies.
    #[inline]
    fn from(cost: Cost) -> Self {
        Self::new(cost)
    }
}

impl From<u64> for Costs {
    /// Sets this number of units for all policies.
    #[inline]
    fn from(units: u64) -> Self {
        Self::new(Cost::new(units))
    }
}

impl<const N: usize> From<[(&'static str, u64); N]> for Costs {
    /// Sets the cost for each policy. A check fails when a policy of the set is not named.
    fn from(costs: [(&'static str, u64); N]) -> Self {
        let none = Self {
            others: None,
            named: SmallVec::new(),
            priority: Priority::CRITICAL,
            customer: None,
            cascade: None,
        };
        costs
            .into_iter()
            .fold(none, |costs, (policy, cost)| costs.with(policy, cost))
    }
}

impl fmt::Debug for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(self.named.iter().map(|(name, cost)| (name, cost.units())));
        if let Some(others) = self.others {
            map.entry(&"..", &others.units());
        }
        if self.priority != Priority::CRITICAL {
            map.entry(&"priority", &self.priority);
        }
        if let Some(customer) = &self.customer {
            map.entry(&"customer", customer);
        }
        if let Some(cascade) = self.cascade {
            map.entry(&"cascade", &cascade);
        }
        map.finish()
    }
}

/// A limit on what may be spent from a policy after a check, instead of its burst.
///
/// A [`Priority`] and [`CheckBuilder::wait`](crate::limiter::CheckBuilder::wait) set ceilings. Only
/// an implementation of [`Store`](crate::Store) reads them: see
/// [`Check::ceiling_of`](crate::store::Check::ceiling_of).
///
/// A check with a ceiling fits when the units that are then spent above [`units`](Self::units)
/// return within [`wait`](Self::wait). So a ceiling below the burst leaves units for other checks.
/// A ceiling with a wait lets the check spend units that have not accrued yet, up to 8 bursts in
/// all: a debt that every other check sees. The stored state is the same under every ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    units: u64,
    wait_us: u64,
    /// The priority whose share the units are.
    share: Option<Priority>,
}

impl Ceiling {
    /// Creates a ceiling at which at most `units` are spent.
    pub(crate) fn units_of(units: u64) -> Self {
        Self {
            units,
            wait_us: 0,
            share: None,
        }
    }

    /// Creates the ceiling of a priority for a policy.
    pub(crate) fn share_of(priority: Priority, policy: &Policy) -> Self {
        let share = policy.is_ranked().then_some(priority);
        Self {
            units: priority.units_of_policy(policy),
            wait_us: 0,
            share,
        }
    }

    /// Returns the same ceiling, which what is spent above it may exceed for `wait_us`
    /// microseconds.
    pub(crate) fn within_us(self, wait_us: u64) -> Self {
        Self { wait_us, ..self }
    }

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

    /// Returns the ceiling that is reached first in a queue of this quota. The share is that of
    /// this ceiling.
    pub(crate) fn lower_of(self, other: Self, quota: &Quota) -> Self {
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
pub(crate) struct Ask {
    pub(crate) cost: u64,
    pub(crate) ceiling: Option<Ceiling>,
}

impl Ask {
    /// Returns the same ask if it was denied. An ask that was not denied asks for nothing more.
    pub(crate) fn denied_unless(self, fits: bool) -> Self {
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

#[cfg(test)]
mod costs_tests {
    use super::*;

    #[test]
    fn costs_name_policies_of_the_set() {
        let quota = Quota::per_minute(10);
        let set = PolicySet::from([
            Policy::token_bucket("requests", quota),
            Policy::token_bucket("tokens", quota),
        ]);
        let charge = |costs: Costs| costs.charge(&set).map_err(|error| error.to_string());
        let (one, nine) = (Cost::ONE, Cost::new(9));
        assert_eq!(
            charge([("tokens", 9), ("requests", 1)].into()),
            Ok(Charge::each([one, nine]))
        );
        assert_eq!(
            charge(Costs::new(one).with("tokens", nine)),
            Ok(Charge::each([one, nine]))
        );
        assert_eq!(
            charge(Costs::new(one).with("tokens", one).with("tokens", nine)),
            Ok(Charge::each([one, nine]))
        );
        assert_eq!(charge(nine.into()), Ok(nine.into()));
        let error = charge(Costs::new(one).with("tokns", nine)).unwrap_err();
        assert_eq!(
            error,
            r#"costs name policy "tokns", which is not in the set requests, tokens"#
        );
        let error = charge([("tokens", 9)].into()).unwrap_err();
        assert_eq!(error, r#"costs do not name policy "requests""#);
        assert_eq!(
            format!("{:?}", Costs::new(one).with("tokens", nine)),
            r#"{"tokens": 9, "..": 1}"#
        );
    }
}

#[cfg(test)]
mod charge_tests {
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
