#[cfg(feature = "redis")]
use std::sync::OnceLock;
use std::{fmt, hash::Hash, ops::Deref, sync::Arc};

#[cfg(feature = "redis")]
use crate::redis::Plan;
use crate::{Cost, Error, ErrorKind, Quota};

/// How a [`Policy`] meters its quota.
///
/// Bounds are over any half-open interval of length L, for amount n per period W and burst b.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Holds at most b units and gains n per W, continuously; starts full. Admits at most
    /// b + ⌊n·L/W⌋. The choice for most limits: bursts are welcome, the rate holds.
    ///
    /// Kept as virtual scheduling, one stored time: the generic cell rate algorithm (GCRA) of
    /// ITU-T I.371 is the same mathematics.
    #[doc(alias = "gcra")]
    TokenBucket,
    /// A counter for each window of W that starts at a multiple of W since the Unix epoch. Admits
    /// n per window, and so up to 2n around a window's edge. For quotas that people read on a
    /// calendar: a day's, an hour's.
    FixedWindow,
    /// A counter whose window opens with the first hit and lasts W. Admits n per window, and up to
    /// 2n − 1 in some interval of length W. What `INCR` with `EXPIRE` is meant to be.
    WindowFromFirstHit,
}

impl Algorithm {
    /// The letter and storage version that end a Redis key: another algorithm, or another layout
    /// of the state, is another key.
    #[cfg(feature = "redis")]
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Self::TokenBucket => "t1",
            Self::FixedWindow => "f1",
            Self::WindowFromFirstHit => "h1",
        }
    }

    /// Whether a burst other than the amount means something.
    const fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket)
    }
}

/// A named quota and the algorithm that meters it.
///
/// The state of a policy belongs to its name and the [`Key`](crate::Key): two limiters on one
/// store that name the same policy spend from one counter. Names are 1 to 64 characters out of
/// `A-Z a-z 0-9 - _ . /`, and are seen by clients in the `RateLimit` fields.
///
/// ```
/// use tollgate::{Algorithm, Policy, Quota};
///
/// const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(20).with_burst(40));
/// assert_eq!(BURST.name(), "burst");
///
/// let read = Policy::try_new("daily", Algorithm::FixedWindow, Quota::per_day(50_000))?;
/// assert_eq!(read.algorithm(), Algorithm::FixedWindow);
///
/// let error = Policy::try_new("two words", Algorithm::FixedWindow, Quota::per_day(1)).unwrap_err();
/// assert_eq!(error.to_string(), r#"policy name must be 1 to 64 of A-Z a-z 0-9 - _ . /, got "two words""#);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Name,
    algorithm: Algorithm,
    quota: Quota,
}

#[derive(Clone)]
enum Name {
    Literal(&'static str),
    Shared(Arc<str>),
}

#[derive(Clone, Copy)]
enum Fault {
    Name,
    WindowBurst,
}

impl Fault {
    const fn text(self) -> &'static str {
        match self {
            Self::Name => "policy name must be 1 to 64 of A-Z a-z 0-9 - _ . /",
            Self::WindowBurst => "policy quota burst must equal its amount: a window has no burst of its own",
        }
    }
}

impl Policy {
    /// A token bucket, see [`Algorithm::TokenBucket`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed. In a `const` this fails the build.
    #[must_use]
    pub const fn token_bucket(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::TokenBucket, quota)
    }

    /// A window aligned to the clock, see [`Algorithm::FixedWindow`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed, or the quota has a burst of its own. In a `const` this fails
    /// the build.
    #[must_use]
    pub const fn fixed_window(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::FixedWindow, quota)
    }

    /// A window that opens with the first hit, see [`Algorithm::WindowFromFirstHit`].
    ///
    /// # Panics
    ///
    /// When the name is not allowed, or the quota has a burst of its own. In a `const` this fails
    /// the build.
    #[must_use]
    pub const fn window_from_first_hit(name: &'static str, quota: Quota) -> Self {
        Self::literal(name, Algorithm::WindowFromFirstHit, quota)
    }

    /// A policy from values that are known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the name is not allowed, or the quota does not fit the algorithm.
    pub fn try_new(name: impl Into<String>, algorithm: Algorithm, quota: Quota) -> Result<Self, Error> {
        let name = name.into();
        match check(name.as_bytes(), algorithm, quota) {
            Ok(()) => Ok(Self { name: Name::Shared(name.into()), algorithm, quota }),
            Err(fault) => Err(Error::config(match fault {
                Fault::Name => format!("{}, got {name:?}", fault.text()),
                Fault::WindowBurst => format!("{}, got {quota:?} in policy {name}", fault.text()),
            })),
        }
    }

    const fn literal(name: &'static str, algorithm: Algorithm, quota: Quota) -> Self {
        if let Err(fault) = check(name.as_bytes(), algorithm, quota) {
            panic!("{}", fault.text());
        }
        Self { name: Name::Literal(name), algorithm, quota }
    }

    /// The name: whose counter this is, in Redis and in the `RateLimit` fields.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.name {
            Name::Literal(name) => name,
            Name::Shared(name) => name,
        }
    }

    /// How the quota is metered.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The policy that one of `replicas` enforces while it cannot ask the others.
    pub(crate) fn share(&self, replicas: u32) -> Self {
        let mut quota = self.quota.share(replicas, self.algorithm.has_burst());
        if !self.algorithm.has_burst() {
            quota = quota.with_burst(quota.amount());
        }
        Self { name: self.name.clone(), algorithm: self.algorithm, quota }
    }
}

const fn check(name: &[u8], algorithm: Algorithm, quota: Quota) -> Result<(), Fault> {
    if name.is_empty() || name.len() > 64 {
        return Err(Fault::Name);
    }
    let mut at = 0;
    while at < name.len() {
        if !(name[at].is_ascii_alphanumeric() || matches!(name[at], b'-' | b'_' | b'.' | b'/')) {
            return Err(Fault::Name);
        }
        at += 1;
    }
    if !algorithm.has_burst() && quota.burst() != quota.amount() {
        return Err(Fault::WindowBurst);
    }
    Ok(())
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}, {:?}", self.name(), self.algorithm, self.quota)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl Name {
    fn text(&self) -> &str {
        match self {
            Self::Literal(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// The policies that are checked together: all are charged, or none.
///
/// Made from one policy, an array or a vector; cheap to clone.
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

struct Set {
    policies: Box<[Arc<Policy>]>,
    /// What the set needs at a Redis server, worked out when it is first asked there.
    #[cfg(feature = "redis")]
    plan: OnceLock<Plan>,
}

/// More policies in one set would make one decision too long for the server that makes them all.
const MAX_POLICIES: usize = 8;

impl PolicySet {
    /// A set from values that are known only at run time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when there is no policy, more than 8, or two of one name.
    pub fn try_new(policies: impl IntoIterator<Item = Policy>) -> Result<Self, Error> {
        let policies: Vec<_> = policies.into_iter().map(Arc::new).collect();
        if policies.is_empty() || policies.len() > MAX_POLICIES {
            return Err(Error::config(format!(
                "policies must be 1 to {MAX_POLICIES} in a set, got {}",
                policies.len()
            )));
        }
        for (at, policy) in policies.iter().enumerate() {
            if policies[..at].iter().any(|other| other.name() == policy.name()) {
                return Err(Error::config(format!(
                    "policies of a set must differ in name, got {:?} twice",
                    policy.name()
                )));
            }
        }
        Ok(Self::of(policies.into()))
    }

    /// The policies, in the order they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Policy> + DoubleEndedIterator {
        self.0.policies.iter().map(Deref::deref)
    }

    /// How many there are; never zero.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a set is never empty")]
    pub fn len(&self) -> usize {
        self.0.policies.len()
    }

    pub(crate) fn shared(&self) -> &[Arc<Policy>] {
        &self.0.policies
    }

    pub(crate) fn share(&self, replicas: u32) -> Self {
        Self::of(self.0.policies.iter().map(|policy| Arc::new(policy.share(replicas))).collect())
    }

    #[cfg(feature = "redis")]
    pub(crate) fn plan(&self) -> &Plan {
        self.0.plan.get_or_init(|| Plan::new(self))
    }

    fn of(policies: Box<[Arc<Policy>]>) -> Self {
        Self(Arc::new(Set {
            policies,
            #[cfg(feature = "redis")]
            plan: OnceLock::new(),
        }))
    }

    /// Refuses a cost that can never fit, before anything is asked.
    pub(crate) fn admits(&self, cost: Cost) -> Result<(), Error> {
        match self.iter().find(|policy| !policy.quota().admits(cost)) {
            None => Ok(()),
            Some(policy) => Err(Error::new(
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

impl From<Policy> for PolicySet {
    fn from(policy: Policy) -> Self {
        Self::of([Arc::new(policy)].into())
    }
}

impl<const N: usize> From<[Policy; N]> for PolicySet {
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] would fail.
    fn from(policies: [Policy; N]) -> Self {
        Self::expect(policies)
    }
}

impl From<Vec<Policy>> for PolicySet {
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] would fail.
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

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_twice_is_refused_and_named() {
        let policy = Policy::token_bucket("a", Quota::per_second(1));
        let error = PolicySet::try_new([policy.clone(), policy]).unwrap_err();
        assert_eq!(error.to_string(), r#"policies of a set must differ in name, got "a" twice"#);
        let error = PolicySet::try_new([]).unwrap_err();
        assert_eq!(error.to_string(), "policies must be 1 to 8 in a set, got 0");
    }

    #[test]
    fn a_window_with_a_burst_is_refused() {
        let quota = Quota::per_second(10).with_burst(20);
        let error = Policy::try_new("w", Algorithm::FixedWindow, quota).unwrap_err();
        assert_eq!(
            error.to_string(),
            "policy quota burst must equal its amount: a window has no burst of its own, got 10 per 1s with burst 20 in policy w"
        );
    }

    #[test]
    fn names_that_could_break_a_header_or_a_redis_key_are_refused() {
        for name in ["", "a b", "a:b", "a{b}", "ä", "a\"", "a\r\n", &"x".repeat(65)] {
            assert!(Policy::try_new(name, Algorithm::TokenBucket, Quota::per_second(1)).is_err(), "{name:?}");
        }
    }
}
