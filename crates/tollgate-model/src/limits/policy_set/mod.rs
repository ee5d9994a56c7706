//! Policies that are checked together, and what can be known of them before a check.
//! One policy is in `policy/`. How a set is charged is in `store/step.rs` and in the scripts.

mod derived;
mod raw;

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
pub use raw::PolicySetParts;

use crate::{
    Cost, Error, Key, Policy,
    charge::{Cascade, ChargeRef},
    policy::{MAX_POLICIES, PolicyParts},
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
    /// The replies of a check and of a batch leave out the second integer of a single bucket.
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
    /// Fails with [`ErrorKind::Config`](crate::ErrorKind::Config) when there is no policy, when there
    /// are more than 8, when two have the same name, when some are [leased](Policy::leased) and
    /// others not, and when more than 4 are leased.
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

    fn with_reach(&self, reach: u8) -> impl Iterator<Item = &Policy> {
        self.iter().filter(move |policy| policy.reach() == reach)
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

    /// Returns the greatest cost that can fit all policies.
    #[inline]
    pub(crate) fn most(&self) -> Cost {
        Cost::new(self.0.max_cost)
    }

    /// Returns the greatest cost that can be divided over the policies that cascade in this charge.
    fn most_of(&self, cascade: Cascade, charge: ChargeRef<'_>) -> Cost {
        let divided = (0..self.len()).filter(|&at| !charge.is_beside(at));
        Cost::new(cascade.most(divided.map(|at| self.shared()[at].quota_ref().burst())))
    }

    #[cold]
    fn find_parts(&self, key: &Key) -> Result<(), Error> {
        self.iter().try_for_each(|policy| policy.find(key))
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
