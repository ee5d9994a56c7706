//! What a request costs as users say it: one number, or units by the name of a policy.
//! What a store is asked for, by the places of a set, is a charge: see `charge.rs`.

use std::{borrow::Cow, fmt};

use smallvec::SmallVec;

use super::charge::{Cascade, Charge, ChargeRef};
use crate::{
    Algorithm, Customer, Error, Policy, PolicySet, Priority, policy::PolicyParts, quota::MAX_EXACT,
};

/// The number of units that one request spends from every policy. [`Costs`] names a cost for each
/// policy.
///
/// A cost of `c` spends as much as `c` requests of [`Cost::ONE`] at the same instant. It is charged
/// as a whole or not at all. A cost above the burst of a policy can never fit and is an
/// [error](crate::ErrorKind::CostExceedsBurst), not a denial. A cost of zero changes nothing: see
/// [`Limiter::peek`].
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
///
/// [`Limiter::peek`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.peek
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
///         Policy::token_bucket("requests", Quota::per_day(60)),
///         Policy::token_bucket("tokens", Quota::per_day(10_000)),
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
    /// the same unit. [`PolicyState::cost`](crate::PolicyState::cost) returns what each
    /// policy gave. A commit of less gives back what was spent last first, and one of more is a
    /// debt of the last policy.
    ///
    /// A policy that is [named](Self::with) is no part of this: it is charged its own cost in full,
    /// whatever its algorithm. So a limit of tokens a minute stands beside the plan, and either all
    /// of them are charged or none.
    ///
    /// Such costs are [reserved][`Limiter::reserve`]: a check and a peek fail with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config). So does a reservation of a
    /// [priority](Self::with_priority) or of a [customer](Self::with_customer), and one whose
    /// policies without a name are not windows with one counter (fixed, calendar, from the first
    /// hit), or are leased.
    ///
    /// In a Redis Cluster, the pool lies in the slot of the plan when it is an outer level of its
    /// key, as here.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Cost, Costs, Key, Limiter, MemoryStore, Policy, Quota};
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
    ///
    /// const RATE: Policy = Policy::token_bucket("rate", Quota::per_hour(500));
    /// let limiter = Limiter::new(MemoryStore::new(), [RATE, PLAN, POOL]);
    /// let costs = Costs::cascading(130).with("rate", Cost::new(130));
    /// let job = limiter.reserve(Key::new("acme").child("bob"), costs).await?.into_result()?;
    /// let gave = |policy| job.decision().state(policy).unwrap().cost().units();
    /// assert_eq!((gave("rate"), gave("plan"), gave("pool")), (130, 100, 30));
    /// # Ok(()) }
    /// ```
    ///
    /// [`Limiter::reserve`]: https://docs.rs/tollgate/latest/tollgate/struct.Limiter.html#method.reserve
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

    /// Returns whether policies pay one after the other.
    #[must_use]
    pub fn cascades(&self) -> bool {
        self.cascade.is_some()
    }

    /// Sets the cost for the policy with this name. Beside [cascading](Self::cascading) costs, the
    /// policy pays it in full.
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

    /// Sets who asks, for a limiter with [fair shares][`LimiterBuilder::fair_shares`]. A check
    /// with a customer fails on any other limiter. A refund and a commit ignore it.
    ///
    /// A check with a customer has no priority of its own.
    ///
    /// [`LimiterBuilder::fair_shares`]: https://docs.rs/tollgate/latest/tollgate/struct.LimiterBuilder.html#method.fair_shares
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

    /// Returns the cost that was set for this policy by its name.
    fn own(&self, policy: &Policy) -> Option<Cost> {
        let mut named = self.named.iter();
        let own = named.find(|(name, _)| name == policy.name());
        own.map(|&(_, cost)| cost)
    }

    /// Returns the sum over the policies that cascade in this charge: the cost that stands for all
    /// of them, if none is named.
    fn sum(&self, policies: &PolicySet, charged: ChargeRef<'_>) -> Option<Cost> {
        let mut each = policies.iter().enumerate();
        let is_one = each.all(|(at, policy)| charged.is_beside(at) || self.own(policy).is_none());
        self.others.filter(|_| is_one)
    }

    /// Returns the cost for each policy of a set, whether the others cascade or not.
    fn each(&self, policies: &PolicySet) -> Result<Charge, Error> {
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
            ..Self::new(Cost::ZERO)
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

/// Reads a cost as scripts take it.
pub trait CostParts: Sized {
    /// Returns the units as a double, which is exact: what is above the largest whole number that a double
    /// counts by ones is that number.
    fn number(self) -> f64;
}

impl CostParts for Cost {
    #[inline]
    fn number(self) -> f64 {
        self.0.min(MAX_EXACT - 1) as f64
    }
}

/// Makes charges of costs: what each policy of a set is charged, or gets back.
pub trait CostsParts: Sized {
    /// Returns the cost of a critical check that asks the same of all policies.
    fn only(&self) -> Option<Cost>;

    /// Returns the cost for each policy of a set.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) when the costs do not name the policies of the set, and when they
    /// cascade, which only those of a reservation do.
    fn charge(&self, policies: &PolicySet) -> Result<Charge, Error>;

    /// Returns what a reservation charges on a set: the cost for each policy, or one that a store divides.
    ///
    /// # Errors
    ///
    /// As [`charge`](Self::charge), and when the policies of the set, a priority or a customer forbid to
    /// cascade.
    fn estimate(&self, policies: &PolicySet) -> Result<Charge, Error>;

    /// Returns what a commit of these costs settles of what was charged: the final cost for each policy.
    ///
    /// # Errors
    ///
    /// As [`charge`](Self::charge).
    fn settle(&self, policies: &PolicySet, charged: ChargeRef<'_>) -> Result<Charge, Error>;

    /// Returns what a refund of these costs gives back of what was charged.
    ///
    /// # Errors
    ///
    /// As [`charge`](Self::charge).
    fn give_back(&self, policies: &PolicySet, charged: ChargeRef<'_>) -> Result<Charge, Error>;

    /// Returns the cost that was set for this policy by its name.
    fn own_of(&self, policy: &Policy) -> Option<Cost>;

    /// Returns the cost for policies without a cost of their own.
    fn others(&self) -> Option<Cost>;

    /// Returns the same costs, with this cost for policies that have none.
    #[must_use]
    fn or(self, others: Cost) -> Self;
}

impl CostsParts for Costs {
    fn own_of(&self, policy: &Policy) -> Option<Cost> {
        self.own(policy)
    }

    fn others(&self) -> Option<Cost> {
        self.others
    }

    fn or(mut self, others: Cost) -> Self {
        self.others.get_or_insert(others);
        self
    }

    #[inline]
    fn only(&self) -> Option<Cost> {
        let is_ranked = self.priority != Priority::CRITICAL || self.customer.is_some();
        self.others
            .filter(|_| self.named.is_empty() && !is_ranked && self.cascade.is_none())
    }

    #[inline]
    fn charge(&self, policies: &PolicySet) -> Result<Charge, Error> {
        if self.cascade.is_some() {
            return Err(Error::config(
                "costs that cascade must be those of a reservation",
            ));
        }
        self.each(policies)
    }

    fn estimate(&self, policies: &PolicySet) -> Result<Charge, Error> {
        let (Some(cascade), Some(cost)) = (self.cascade, self.others) else {
            return self.charge(policies);
        };
        self.each(policies)?;
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
        let unnamed = || policies.iter().filter(|policy| self.own(policy).is_none());
        match (
            unnamed().find(|policy| !has_counter(policy)),
            unnamed().count(),
        ) {
            (Some(other), _) => Err(Error::config(format!(
                "costs cascade over windows with one counter that are not leased, got policy {other:?}: name its cost to charge it in full"
            ))),
            (None, 0) => Err(Error::config(format!(
                "costs that cascade have a policy without a cost of its own, got {} that are all named",
                names(policies)
            ))),
            _ if policies.len() == 1 => Ok(cost.into()),
            _ => Ok(Charge::cascading(
                cost,
                cascade,
                policies.iter().map(|policy| self.own(policy)),
            )),
        }
    }

    fn settle(&self, policies: &PolicySet, charged: ChargeRef<'_>) -> Result<Charge, Error> {
        match charged.cascade().and_then(|_| self.sum(policies, charged)) {
            Some(total) => {
                let each = self.each(policies)?;
                Ok(charged.settled_at(total, each.borrow(), policies.len()))
            }
            None => self.charge(policies),
        }
    }

    fn give_back(&self, policies: &PolicySet, charged: ChargeRef<'_>) -> Result<Charge, Error> {
        let charge = self.charge(policies)?;
        let count = policies.len();
        Ok(
            match charged.cascade().and_then(|_| self.sum(policies, charged)) {
                Some(total) => charged.given_back(total, charge.borrow(), count),
                None => charge.borrow().at_most(charged, count),
            },
        )
    }
}
