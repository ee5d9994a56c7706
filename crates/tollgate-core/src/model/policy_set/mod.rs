//! Policies that are checked together, and what can be known of them before a check.
//! One policy is in `model/policy/`. How a set is charged is in `store/step.rs` and in the scripts.

mod derived;

use std::{
    fmt,
    hash::{Hash, Hasher},
    num::NonZeroU32,
    ops::Deref,
    slice,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;

pub use derived::Derived;

use crate::{
    Cost, Error, ErrorKind, Key, Policy,
    model::{
        charge::{Cascade, Charge, ChargeRef},
        policy::MAX_POLICIES,
    },
};

/// Groups up to 8 policies that are checked together: all are charged, or none.
///
/// One request can thus be limited per second, per hour and per day in one atomic step. The
/// policies may use different algorithms, and meter different levels and branches of a [`Key`]. A
/// set is made from one policy, an array or a vector, and is cheap to clone. Two sets are equal if
/// they hold equal policies in the same order.
///
/// ```
/// use tollgate::{Policy, PolicySet, Quota};
///
/// let set = PolicySet::from([
///     Policy::token_bucket("burst", Quota::per_second(20)),
///     Policy::fixed_window("daily", Quota::per_day(50_000)),
/// ]);
/// assert_eq!(set.iter().map(Policy::name).collect::<Vec<_>>(), ["burst", "daily"]);
/// ```
#[derive(Clone)]
pub struct PolicySet(Arc<Set>);

/// Keeps what a set needs beside its policies. A service may have a set for each of its tenants, so
/// sets share what a store [derives](Derived) from their algorithms. A set of one policy is two allocations: 72
/// bytes for the set and 88 for the policy. With the 8 bytes that an allocator adds, both are a
/// multiple of 16, so that a further word in one of them takes 16 bytes.
struct Set {
    /// Shared one by one: the in-process store keeps the policy that wrote a state.
    policies: Policies,
    /// The smallest burst of the policies, and so the greatest cost that fits all of them. 0 when a
    /// policy blocks.
    max_cost: u64,
    /// The greatest [reach](Policy::reach) of the policies; 0 when all meter the whole key.
    reach: u8,
    /// The policies are leased: all of them are, or none.
    is_leased: bool,
    /// A policy is a sliding log, so that a check has a tag.
    is_tagged: bool,
    /// The replies of a check and of a batch leave out the second word of a single bucket.
    is_short: bool,
    /// What a store derives from this set, at its first call.
    derived: OnceLock<Arc<Derived>>,
    /// The share of one replica, computed by the first check in an outage.
    share: ArcSwapOption<ReplicaShare>,
}

/// The set that each of several replicas enforces alone during an outage.
struct ReplicaShare {
    replicas: NonZeroU32,
    policies: PolicySet,
}

impl PolicySet {
    /// The most policies of a set.
    ///
    /// ```
    /// use tollgate::{Algorithm, Policy, PolicySet, Quota};
    ///
    /// let set = |count| {
    ///     let policy = |at| Policy::try_new(format!("api-{at}"), Algorithm::TokenBucket, Quota::per_second(20));
    ///     PolicySet::try_new((0..count).map(|at| policy(at).expect("a policy")))
    /// };
    /// assert!(set(PolicySet::MAX_POLICIES).is_ok());
    /// assert!(set(PolicySet::MAX_POLICIES + 1).is_err());
    /// ```
    pub const MAX_POLICIES: usize = MAX_POLICIES;

    /// The most policies of a set whose policies are [leased](Policy::leased).
    // A script may have 200 local variables.
    pub const MAX_LEASED: usize = 4;

    /// Creates a set of policies that are known only at run time.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorKind::Config`] when there is no policy, when there are more than 8, when
    /// two have the same name, when some are [leased](Policy::leased) and others not, and when more
    /// than 4 are leased.
    ///
    /// ```
    /// use tollgate::{Policy, PolicySet, Quota};
    ///
    /// let policy = Policy::token_bucket("api", Quota::per_second(20));
    /// let error = PolicySet::try_new([policy.clone(), policy]).unwrap_err();
    /// assert_eq!(error.to_string(), r#"policies of a set must differ in name, got "api" twice"#);
    /// ```
    pub fn try_new(policies: impl IntoIterator<Item = Policy>) -> Result<Self, Error> {
        let policies: Policies = policies.into_iter().map(Arc::new).collect();
        if policies.is_empty() || policies.len() > MAX_POLICIES {
            return Err(Error::config(format!(
                "policies must be 1 to {MAX_POLICIES} in a set, got {}",
                policies.len()
            )));
        }
        for (at, policy) in policies.iter().enumerate() {
            if policies[..at]
                .iter()
                .any(|other| other.name() == policy.name())
            {
                return Err(Error::config(format!(
                    "policies of a set must differ in name, got {:?} twice",
                    policy.name()
                )));
            }
        }
        let leased = policies.iter().filter(|policy| policy.is_leased()).count();
        if leased > 0 && leased < policies.len() {
            return Err(Error::config(format!(
                "policies of a set must all be leased or none, got {leased} leased of {}: the others need a trip for each check",
                policies.len()
            )));
        }
        if leased > Self::MAX_LEASED {
            return Err(Error::config(format!(
                "leased policies must be 1 to {} in a set, got {leased}",
                Self::MAX_LEASED
            )));
        }
        Ok(Self::of(policies))
    }

    /// Returns the policies in the order in which they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Policy> + DoubleEndedIterator {
        self.0.policies.iter().map(Deref::deref)
    }

    /// Returns the number of policies, 1 to 8.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a set is never empty")]
    pub fn len(&self) -> usize {
        self.0.policies.len()
    }

    /// Returns whether a policy has an amount of 0, so that every check of the set is
    /// [blocked](crate::Decision::is_blocked).
    #[must_use]
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.0.max_cost == 0
    }

    pub(crate) fn blocked(&self) -> Self {
        Self::of(
            self.iter()
                .map(|policy| Arc::new(policy.blocked()))
                .collect(),
        )
    }

    /// Returns whether replicas take units in advance.
    #[inline]
    pub(crate) fn is_leased(&self) -> bool {
        self.0.is_leased
    }

    pub(crate) fn shared(&self) -> &[Arc<Policy>] {
        &self.0.policies
    }

    /// Returns the policies of one branch, as they meter the key of the branch alone. `None` when
    /// there are none.
    pub(crate) fn branch(&self, branch: u8) -> Option<Self> {
        let own = self
            .shared()
            .iter()
            .filter(|policy| policy.branch() == branch);
        let alone = |policy: &Arc<Policy>| match branch {
            1 => Arc::clone(policy),
            _ => Arc::new(policy.as_ref().clone().at_branch(1)),
        };
        let policies: Policies = own.map(alone).collect();
        (!policies.is_empty()).then(|| Self::of(policies))
    }

    /// Decides on the set that each of `replicas` enforces alone during an outage.
    ///
    /// The set keeps the share that was computed last, because an outage asks for it with every
    /// check. Two checks that see another number together both compute the same share.
    pub(crate) fn with_share<T>(&self, replicas: NonZeroU32, decide: impl FnOnce(&Self) -> T) -> T {
        if replicas == NonZeroU32::MIN {
            return decide(self);
        }
        if let Some(share) = &*self.0.share.load()
            && share.replicas == replicas
        {
            return decide(&share.policies);
        }
        let policies = Self::of(
            self.iter()
                .map(|policy| Arc::new(policy.share(replicas.get())))
                .collect(),
        );
        let share = Arc::new(ReplicaShare { replicas, policies });
        self.0.share.store(Some(Arc::clone(&share)));
        decide(&share.policies)
    }

    /// Returns `true` when both sets hold the same policies.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.shared() == other.shared()
    }

    /// Returns `true` when a policy of both sets has the same state for one key. Only policies with
    /// these [reaches](Policy::reach) count, the first one in this set.
    pub(crate) fn shares_state(&self, other: &Self, reaches: (u8, u8)) -> bool {
        self.with_reach(reaches.0)
            .any(|one| other.with_reach(reaches.1).any(|two| one.shares_state(two)))
    }

    fn with_reach(&self, reach: u8) -> impl Iterator<Item = &Policy> {
        self.iter().filter(move |policy| policy.reach() == reach)
    }

    /// Returns what a store has derived from the set. `derive` is called for the first kind of
    /// store that asks.
    #[inline]
    pub(crate) fn derived(
        &self,
        derive: impl FnOnce(&[Arc<Policy>]) -> Arc<Derived>,
    ) -> &Arc<Derived> {
        self.0.derived.get_or_init(|| derive(self.shared()))
    }

    /// Returns `true` when a policy is a sliding log, so that a check has a tag.
    #[inline]
    pub(crate) fn is_tagged(&self) -> bool {
        self.0.is_tagged
    }

    /// Returns `true` when the replies of a check and of a batch leave out the second word of a
    /// single bucket, because it is always zero.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.0.is_short
    }

    /// Returns `true` when a refund depends on the time until a bucket is full, as it was after the
    /// request.
    pub(crate) fn is_queued(&self) -> bool {
        self.iter()
            .any(|policy| policy.algorithm().is_queued(false))
    }

    /// Returns a number that stands for these policies, in this order, in the name of a
    /// reservation. Their quotas are no part of it. It is the same in all processes.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.iter().fold(0, |all: u64, policy| {
            (all.rotate_left(29) ^ policy.fingerprint()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        })
    }

    fn of(policies: Policies) -> Self {
        Self(Arc::new(Set {
            max_cost: policies
                .iter()
                .map(|policy| policy.quota().burst())
                .min()
                .unwrap_or(0),
            reach: policies
                .iter()
                .map(|policy| policy.reach())
                .max()
                .unwrap_or(0),
            is_leased: policies.iter().any(|policy| policy.is_leased()),
            is_tagged: policies
                .iter()
                .any(|policy| policy.algorithm().facts().is_tagged),
            is_short: matches!(&*policies, [alone] if alone.is_short()),
            policies,
            derived: OnceLock::new(),
            share: ArcSwapOption::empty(),
        }))
    }

    /// Returns the sliding log with the longest period. Its entries are listed.
    pub(crate) fn log(&self) -> Result<&Policy, Error> {
        let logs = self
            .iter()
            .filter(|policy| policy.algorithm().facts().is_tagged);
        logs.max_by_key(|policy| policy.quota().period())
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Unsupported,
                    "no policy of the set is a sliding log, and only a sliding log stores entries",
                )
            })
    }

    /// Returns the greatest cost that can fit all policies.
    #[inline]
    pub(crate) fn most(&self) -> Cost {
        Cost::new(self.0.max_cost)
    }

    /// Returns the charge with each cost cut to the burst of its policy, or to what its rank has of
    /// that.
    pub(crate) fn cut(&self, charge: ChargeRef<'_>) -> Charge {
        if charge.each.is_none() && charge.cost <= self.most() {
            return charge.cost.into();
        }
        let burst = |at: usize| self.shared()[at].quota_ref().burst();
        let ceilings = || (0..self.len()).map_while(|at| Some(charge.ceiling(at)?.cut(burst(at))));
        let most = |at: usize| {
            charge
                .ceiling(at)
                .map_or(burst(at), |ceiling| ceiling.cut(burst(at)).units())
        };
        let costs = charge.iter(self.len()).enumerate();
        let mut costs = costs.map(|(at, cost)| cost.min(Cost::new(most(at))));
        let cut = match charge.cascade() {
            Some(cascade) => {
                let total = charge.cost.min(self.most_of(cascade, charge));
                let own = (0..self.len()).map(|at| costs.next().filter(|_| charge.is_beside(at)));
                Charge::cascading(total, cascade, own)
            }
            None => Charge::each(costs),
        };
        if charge.is_capped() {
            cut.under(ceilings())
        } else {
            cut
        }
    }

    /// Returns the greatest cost that can be divided over the policies that cascade in this charge.
    fn most_of(&self, cascade: Cascade, charge: ChargeRef<'_>) -> Cost {
        let divided = (0..self.len()).filter(|&at| !charge.is_beside(at));
        Cost::new(cascade.most(divided.map(|at| self.shared()[at].quota_ref().burst())))
    }

    /// Refuses a cost that can never fit, before the store is called.
    #[inline]
    pub(crate) fn admits(&self, charge: ChargeRef<'_>) -> Result<(), Error> {
        if charge.cost <= self.most() {
            Ok(())
        } else {
            self.refuse(charge)
        }
    }

    /// Returns `true` when a policy meters a level or a branch of its own, so that keys may share a
    /// state.
    #[inline]
    pub(crate) fn meters_parts(&self) -> bool {
        self.0.reach > 0
    }

    /// Returns the branch of a key that the first policy meters. A key without branches returns
    /// itself.
    #[inline]
    pub(crate) fn first_branch<'a>(&self, key: &'a Key) -> &'a Key {
        match self.shared() {
            [first, ..] if key.has_branches() => first.branch_of(key),
            _ => key,
        }
    }

    /// Refuses a key that lacks a branch or levels that a policy meters, before the store is
    /// called.
    #[inline]
    pub(crate) fn reaches(&self, key: &Key) -> Result<(), Error> {
        if self.0.reach <= key.reach() {
            Ok(())
        } else {
            self.find_parts(key)
        }
    }

    #[cold]
    fn find_parts(&self, key: &Key) -> Result<(), Error> {
        self.iter().try_for_each(|policy| policy.find(key))
    }

    /// Refuses a cost that can never fit, after a look at each policy.
    #[cold]
    pub(crate) fn refuse(&self, charge: ChargeRef<'_>) -> Result<(), Error> {
        if let Some(cascade) = charge.cascade()
            && let (cost, most) = (charge.cost, self.most_of(cascade, charge))
            && cost > most
        {
            return Err(Error::new(
                ErrorKind::CostExceedsBurst,
                format!(
                    "cost {} exceeds the {} units that the policies that cascade can give",
                    cost.units(),
                    most.units()
                ),
            ));
        }
        let is_divided = |at| charge.cascade().is_some() && !charge.is_beside(at);
        let each = (0..self.len()).filter(|&at| !is_divided(at));
        let exceeding = each.map(|at| (&*self.shared()[at], charge.of(at)));
        let exceeding = exceeding.filter(|(policy, cost)| cost.units() > policy.quota().burst());
        // The smallest burst is named, so that a cost that is lowered to it fits.
        match exceeding.min_by_key(|(policy, _)| policy.quota().burst()) {
            None => Ok(()),
            Some((policy, cost)) if policy.is_hidden() => {
                Err(Error::new(ErrorKind::CostExceedsBurst, beyond_hidden(cost)))
            }
            Some((policy, cost)) => Err(Error::new(
                ErrorKind::CostExceedsBurst,
                format!(
                    "cost {} exceeds the burst {} of policy {}",
                    cost.units(),
                    policy.quota().burst(),
                    policy.name()
                ),
            )),
        }
    }
}

/// Says that a cost never fits a hidden policy. A client may read it, so it names no number of the
/// policy.
pub(crate) fn beyond_hidden(cost: Cost) -> String {
    format!("cost {} exceeds what one request may spend", cost.units())
}

/// Becomes the policies of a limiter: a [`Policy`], an array or a vector of them, or a
/// [`PolicySet`]. Every type that converts into a set implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no policy, and no set of policies",
    label = "not the policies of a limiter",
    note = "give a quota a name and an algorithm: `Policy::token_bucket(\"api\", quota)`; several policies stand in an array"
)]
pub trait IntoPolicySet {
    /// Returns the set.
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies.
    fn into_policy_set(self) -> PolicySet;
}

#[diagnostic::do_not_recommend]
impl<T: Into<PolicySet>> IntoPolicySet for T {
    fn into_policy_set(self) -> PolicySet {
        self.into()
    }
}

impl From<Policy> for PolicySet {
    /// Creates a set of one policy.
    fn from(policy: Policy) -> Self {
        Self::of(Policies::One(Arc::new(policy)))
    }
}

impl<const N: usize> From<[Policy; N]> for PolicySet {
    /// Creates a set of the policies of an array.
    ///
    /// # Panics
    ///
    /// Panics when [`PolicySet::try_new`] would fail.
    fn from(policies: [Policy; N]) -> Self {
        Self::expect(policies)
    }
}

impl From<Vec<Policy>> for PolicySet {
    /// Creates a set of the policies of a vector.
    ///
    /// # Panics
    ///
    /// Panics when [`PolicySet::try_new`] would fail.
    fn from(policies: Vec<Policy>) -> Self {
        Self::expect(policies)
    }
}

impl PolicySet {
    fn expect(policies: impl IntoIterator<Item = Policy>) -> Self {
        match Self::try_new(policies) {
            Ok(set) => set,
            Err(error) => panic!("{error}"),
        }
    }
}

impl PartialEq for PolicySet {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
    }
}

impl Eq for PolicySet {}

impl Hash for PolicySet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shared().hash(state);
    }
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The policies of a set in their order. One policy stands without a list.
///
/// The type takes two words, and a `SmallVec` three. A service may have a set for each of its
/// tenants.
#[derive(Debug)]
enum Policies {
    One(Arc<Policy>),
    /// More than one policy, or none.
    List(Box<[Arc<Policy>]>),
}

impl Deref for Policies {
    type Target = [Arc<Policy>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::One(policy) => slice::from_ref(policy),
            Self::List(policies) => policies,
        }
    }
}

impl FromIterator<Arc<Policy>> for Policies {
    fn from_iter<I: IntoIterator<Item = Arc<Policy>>>(policies: I) -> Self {
        let mut policies: SmallVec<[_; 1]> = policies.into_iter().collect();
        policies.shrink_to_fit();
        match policies.into_inner() {
            Ok([alone]) => Self::One(alone),
            Err(policies) => Self::List(policies.into_boxed_slice()),
        }
    }
}

#[cfg(test)]
mod tests;
