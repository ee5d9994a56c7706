use std::{fmt, time::Duration};

use crate::{
    Algorithm, Cost, ErrorKind, Policy, PolicySet,
    algorithm::{Numbers, delay_us, numbers},
    clock::micros,
    policy_levels::PolicyLevels,
    reason::Reason,
};

/// The outcome of a check: allowed or denied, and what every policy has left.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use std::time::Duration;
/// use tollgate::{Clock, Limiter, MemoryStore, Policy, Quota};
///
/// let store = MemoryStore::builder().clock(Clock::manual(0)).build();
/// let limiter = Limiter::new(store, Policy::token_bucket("one", Quota::per_second(1)));
/// assert!(limiter.check("acme").await?.is_allowed());
///
/// let decision = limiter.check("acme").await?;
/// assert!(decision.is_denied());
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(1)));
/// assert_eq!(decision.binding().unwrap().policy().name(), "one");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a decision that is not looked at limits nothing"]
pub struct Decision {
    policies: PolicySet,
    at_us: u64,
    /// By how much the turn that was offered lay beyond what the caller would wait; 0 otherwise.
    late_us: u64,
    readings: PolicyLevels,
    cost: Cost,
    /// The code of the reason; 0 when the store decided. (As an `Option` it would be where every
    /// enum around a decision keeps its own variant, and a decision would be copied in odd pieces.)
    degraded: u8,
}

/// Why a decision was made without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Degraded {
    /// The store did not answer before the deadline.
    Timeout,
    /// The store cannot be reached, or says that it cannot serve now.
    Unavailable,
    /// The store refuses us, or answers nonsense: a password, a right, a foreign reply. Somebody
    /// has to look.
    Misconfigured,
}

impl Degraded {
    pub(crate) fn from_kind(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Unavailable => Self::Unavailable,
            _ => Self::Misconfigured,
        }
    }

    /// A word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Misconfigured => "misconfigured",
        }
    }
}

impl Decision {
    /// A decision made from the readings of all policies of a set.
    #[inline]
    pub(crate) fn from_readings(policies: &PolicySet, readings: PolicyLevels, cost: Cost, at_us: u64) -> Self {
        Self { policies: policies.clone(), at_us, late_us: 0, readings, cost, degraded: 0 }
    }

    /// A decision that no policy was asked for.
    pub(crate) fn open(policies: &PolicySet, cost: Cost, why: Reason) -> Self {
        Self::from_readings(policies, PolicyLevels::new(), cost, 0).degraded_by(why)
    }

    pub(crate) fn degraded_by(mut self, why: Reason) -> Self {
        self.degraded = why.code();
        self
    }

    /// The denial of a request of `cost` whose turn would come later than the caller waits, made
    /// from a look at the state without it.
    pub(crate) fn turned_away(mut self, cost: Cost, max_wait: Duration) -> Self {
        let late = self.delay().saturating_sub(max_wait);
        self.cost = cost;
        self.late_us = micros(late).max(1);
        self
    }

    /// Whether the request may pass. A peek is always allowed: look at what remains.
    #[must_use]
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.late_us == 0 && self.readings.fit()
    }

    /// Whether the request must not pass.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// How long until the same request would pass, if nobody else spends from this key: exact, the
    /// longest over the policies that deny. `None` when allowed.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed() {
            return None;
        }
        self.states().filter_map(|state| state.retry_after()).max()
    }

    /// How long to wait before the request is acted on: until its turn comes in every
    /// [queue](crate::Algorithm::LeakyBucket) among the policies. Zero where there is none, and
    /// when denied. For a peek it is what a request would be told that came now.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.states().map(|state| state.delay()).max().unwrap_or_default()
    }

    /// Why the decision was made without the store, if it was.
    #[must_use]
    pub fn degraded(&self) -> Option<Degraded> {
        self.why().map(|why| Degraded::from_kind(why.kind()))
    }

    /// The same in one word that does not change between versions, and finer: see
    /// [`Error::reason`](crate::Error::reason).
    #[must_use]
    pub fn degraded_reason(&self) -> Option<&'static str> {
        self.why().map(Reason::as_str)
    }

    fn why(&self) -> Option<Reason> {
        Reason::of_code(self.degraded)
    }

    /// Whether the decision was made without the store, as [`Outage`](crate::Outage) says.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded > 0
    }

    /// What the request spends, or would have spent.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The policies that were checked.
    #[must_use]
    pub fn policies(&self) -> &PolicySet {
        &self.policies
    }

    /// The state of every policy, in the order of the set. Empty when an outage was answered with
    /// [`Outage::Open`](crate::Outage::Open).
    #[must_use]
    pub fn states(&self) -> impl ExactSizeIterator<Item = PolicyState<'_>> {
        let (cost, is_allowed) = (self.cost.get(), self.is_allowed());
        self.readings.iter(&self.policies).map(move |(policy, reading)| {
            let mut numbers = numbers(policy, &reading, cost);
            let is_late = self.late_us > 0 && policy.algorithm() == Algorithm::LeakyBucket;
            if is_late {
                numbers.retry_us = numbers.retry_us.max(self.late_us);
            }
            PolicyState {
                policy,
                is_exceeded: !reading.fits || is_late,
                numbers,
                delay_us: if is_allowed { delay_us(policy, &reading, cost) } else { 0 },
            }
        })
    }

    /// The state of the policy of this name.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<PolicyState<'_>> {
        self.states().find(|state| state.policy.name() == name)
    }

    /// The policy that binds: when denied, the one to wait longest for; when allowed, the one
    /// nearest to exhaustion, by the share of its burst that remains.
    #[must_use]
    pub fn binding(&self) -> Option<PolicyState<'_>> {
        if self.policies.len() == 1 {
            return self.states().next();
        }
        self.states().max_by(|a, b| {
            // The shares are compared as products, exactly.
            let share = |state: &PolicyState<'_>, of: &PolicyState<'_>| {
                u128::from(state.remaining()) * u128::from(of.policy.quota().burst())
            };
            a.retry_after().cmp(&b.retry_after()).then_with(|| share(b, a).cmp(&share(a, b)))
        })
    }

    /// What each policy read.
    #[cfg(feature = "redis")]
    pub(crate) fn readings(&self) -> &PolicyLevels {
        &self.readings
    }

    /// When the store decided, on its own clock; 0 if it did not say.
    pub(crate) fn at_us(&self) -> u64 {
        self.at_us
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("allowed", &self.is_allowed())
            .field("degraded", &self.degraded())
            .field("cost", &self.cost.units())
            .field("states", &self.states().collect::<Vec<_>>())
            .finish()
    }
}

/// What one policy says of a key at the moment of a decision, after the charge if there was one.
#[derive(Clone, Copy)]
pub struct PolicyState<'a> {
    policy: &'a Policy,
    is_exceeded: bool,
    numbers: Numbers,
    delay_us: u64,
}

impl<'a> PolicyState<'a> {
    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &'a Policy {
        self.policy
    }

    /// Whether this policy denies the request.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Requests of cost one that would still pass at this instant.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.numbers.remaining
    }

    /// How long until the denied request would fit, if nobody else spends. `Some`, and never zero,
    /// exactly when [`is_exceeded`](Self::is_exceeded).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        // A state that somebody else wrote may deny without a reason that arithmetic knows.
        self.is_exceeded.then(|| Duration::from_micros(self.numbers.retry_us.max(1)))
    }

    /// How long until the admitted request's turn comes in this queue; zero when the decision is a
    /// denial, and for a policy that is no [queue](crate::Algorithm::LeakyBucket).
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us)
    }

    /// How long until everything is back, if nobody spends.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.numbers.reset_us)
    }

    /// How long until one unit more than [`remaining`](Self::remaining) is there; zero when
    /// nothing is spent. The `t` of the `RateLimit` field.
    #[must_use]
    pub fn more_after(&self) -> Duration {
        Duration::from_micros(self.numbers.more_us)
    }
}

impl fmt::Debug for PolicyState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyState")
            .field("policy", &self.policy.name())
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .finish()
    }
}
