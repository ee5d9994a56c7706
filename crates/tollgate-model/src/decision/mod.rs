//! The outcome of a check: the levels of its policies, and what a caller reads in them.
//! How a decision comes about is not known here: a store makes it from the readings that an algorithm
//! returns.

mod answers;
mod branch;
mod raw;
#[cfg(feature = "test-util")]
mod scripted;
mod state;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::OnceLock,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    Cost, ErrorKind, Policy, PolicySet,
    algorithm::{Numbers, PolicyLevel, delay_us, numbers},
    charge::{Ask, Cascade, Charge, EachCost},
    policy::PolicyParts,
};
pub use answers::{Denied, KeyState};
pub use raw::DecisionParts;
#[cfg(feature = "test-util")]
pub use scripted::ScriptedDecision;
pub use state::PolicyState;
use state::instant;

/// The outcome of a check: allowed or denied, and what every policy has left.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// use std::time::Duration;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
///
/// let store = MemoryStore::builder().clock(Clock::manual(0)).build();
/// let limiter = Limiter::new(store, Policy::token_bucket("one", Quota::per_second(1)));
/// assert!(limiter.check("acme").await?.is_allowed());
///
/// let decision = limiter.check("acme").await?;
/// assert!(decision.is_denied());
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(1)));
/// assert_eq!(decision.strictest().unwrap().policy().name(), "one");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a decision that is ignored limits nothing"]
pub struct Decision {
    policies: PolicySet,
    at_us: u64,
    levels: PolicyLevels,
    cost: Cost,
}

/// Marks the time of a decision that is on a clock of the process: the store did not say when it
/// decided.
const HERE: u64 = 1 << 63;

/// The start of the clock of such times.
static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Marks a remembered denial.
const REMEMBERED: u8 = 1;

/// Marks a decision over leased units.
const LEASED: u8 = 2;

/// Marks a denial by a policy that blocks.
const BLOCKED: u8 = 3;

/// Marks a look. Its delays are those of a request that would come now.
const LOOK: u8 = 4;

impl Decision {
    /// Returns the same look. What would be admitted asks for nothing: it was not charged, so no
    /// queue has it.
    pub(crate) fn uncharged(mut self) -> Self {
        if self.is_allowed() {
            // The ceilings stay: they say what the rank can have.
            let each = Charge::from(Cost::ZERO)
                .under_those_of(self.charge())
                .into_each();
            (self.cost, self.levels) = (Cost::ZERO, self.levels.with_costs(each));
            self.levels.marks.in_process = LOOK;
        }
        self
    }

    /// Returns whether the decision spent [leased](crate::Policy::leased) units: the store had
    /// granted them to this process before, and was not asked again.
    ///
    /// [`remaining`](PolicyState::remaining) is a lower bound then: the units that this process
    /// still holds. More units may be left in the store.
    #[must_use]
    #[inline]
    pub fn is_leased(&self) -> bool {
        self.levels.marks.in_process == LEASED
    }

    /// Returns whether the denial was remembered in this process, so that the store was not asked:
    /// see `RedisStoreBuilder::deny_cache_cap`.
    ///
    /// [`remaining`](PolicyState::remaining) is then what was left when the store denied the
    /// request. Other requests may have spent it since.
    #[must_use]
    #[inline]
    pub fn is_remembered(&self) -> bool {
        self.levels.marks.in_process == REMEMBERED
    }

    /// Returns whether the request is denied because a policy has an [amount of
    /// 0](crate::Quota::is_blocked), for example for a suspended tenant.
    ///
    /// No wait helps, so such a denial has no [`retry_after`](Self::retry_after). The store was not
    /// asked: every policy reports nothing left, and the policies that block are
    /// [exceeded](PolicyState::is_exceeded).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// let suspended = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_minute(0)));
    /// let decision = suspended.check("acme").await?;
    /// assert!(decision.is_denied() && decision.is_blocked());
    /// assert_eq!(decision.retry_after(), None);
    /// assert_eq!(decision.into_result().unwrap_err().to_string(), "rate limit api blocks all requests");
    /// # Ok(()) }
    /// ```
    #[must_use]
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.levels.marks.in_process == BLOCKED
    }

    /// Returns whether the request may pass.
    #[must_use]
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.levels.fit()
    }

    /// Returns whether the request must not pass.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        !self.is_allowed()
    }

    /// Returns how long until the same request would pass, if no other request spends from this
    /// key. `None` when the request is allowed, and when no wait helps because a policy
    /// [blocks](Self::is_blocked).
    ///
    /// The time is exact. If several policies deny, it is the longest wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed() {
            return None;
        }
        self.states().filter_map(|state| state.retry_after()).max()
    }

    /// Returns how long to wait before the work on an allowed request starts: until its turn in
    /// every [leaky bucket](crate::Algorithm::LeakyBucket) that it spends from. For a caller of
    /// [`wait`][`CheckBuilder::wait`] that went into debt: until the debt is paid.
    ///
    /// Zero in all other cases, and for a denial. A request whose cost for a queue is zero has no
    /// place in it, and does not wait for those that have.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::Duration;
    /// use tollgate::{Costs, Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// let store = MemoryStore::builder().clock(Clock::manual(0)).build();
    /// let mails = Policy::leaky_bucket("mails", Quota::per_second(1).with_burst(5));
    /// let limiter = Limiter::new(store, [mails, Policy::fixed_window("calls", Quota::per_day(100))]);
    /// assert_eq!(limiter.check("acme").cost(3).await?.delay(), Duration::ZERO);
    /// assert_eq!(limiter.check("acme").await?.delay(), Duration::from_secs(3));
    ///
    /// let without_mail = Costs::from([("mails", 0), ("calls", 1)]);
    /// assert_eq!(limiter.check("acme").cost(without_mail).await?.delay(), Duration::ZERO);
    /// # Ok(()) }
    /// ```
    ///
    /// [`CheckBuilder::wait`]: https://docs.rs/tollgate/latest/tollgate/limiter/struct.CheckBuilder.html#method.wait
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.states()
            .map(|state| state.delay())
            .max()
            .unwrap_or_default()
    }

    /// Returns why the store did not make the decision. `None` when the store made it.
    ///
    /// [`ErrorKind::as_str`] is a stable label for metrics.
    #[must_use]
    pub fn degraded(&self) -> Option<ErrorKind> {
        ErrorKind::from_code(self.levels.marks.degraded)
    }

    /// Returns whether the [`Outage`] made the decision instead of the store.
    ///
    /// [`Outage`]: https://docs.rs/tollgate/latest/tollgate/enum.Outage.html
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.levels.marks.degraded > 0
    }

    /// Returns the units that the request spends, or would have spent. If each policy has a cost of
    /// its own, returns the greatest, and the sum of [cascading](crate::Costs::cascading) costs: see
    /// [`PolicyState::cost`].
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns when the store decided, by its own clock. `None` if it did not say: a server does not
    /// for a token bucket or a queue that is alone, and nobody knows the time of a decision that no
    /// store made.
    ///
    /// A wait of the decision counts from this time: a window ends at
    /// `decided_at() + next_unit_after()`, to the microsecond. A clock that is read later says so
    /// much more.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
    ///
    /// let store = MemoryStore::builder().clock(Clock::manual(3_600_250_000)).build();
    /// let limiter = Limiter::new(store, Policy::fixed_window("hourly", Quota::per_hour(10)));
    /// let decision = limiter.check("acme").await?;
    /// let decided_at = decision.decided_at().unwrap();
    /// assert_eq!(decided_at, UNIX_EPOCH + Duration::from_micros(3_600_250_000));
    ///
    /// let hourly = decision.state("hourly").unwrap();
    /// assert_eq!(decided_at + hourly.next_unit_after(), UNIX_EPOCH + Duration::from_secs(7_200));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn decided_at(&self) -> Option<SystemTime> {
        Some(self.at_us()).filter(|&at_us| at_us > 0).map(instant)
    }

    /// Returns the policies that were checked.
    #[must_use]
    pub fn policies(&self) -> &PolicySet {
        &self.policies
    }

    /// Returns the state of every policy, in the order of the set. Empty for a decision by
    /// [`Outage::Open`].
    ///
    /// [`Outage::Open`]: https://docs.rs/tollgate/latest/tollgate/enum.Outage.html#variant.Open
    #[must_use]
    pub fn states(&self) -> impl ExactSizeIterator<Item = PolicyState<'_>> {
        let (charge, is_allowed) = (self.charge(), self.is_allowed());
        let covered_us = match charge.cascade() {
            Some(cascade) if !is_allowed && !self.is_blocked() => self.covered_us(cascade),
            _ => 0,
        };
        let is_divided = move |at| covered_us > 0 && !charge.is_beside(at);
        self.levels
            .iter(&self.policies)
            .enumerate()
            .map(move |(at, (policy, level))| {
                let mut state = PolicyState {
                    policy,
                    is_exceeded: !level.fits,
                    numbers: Numbers::default(),
                    delay_us: 0,
                    cost: charge.of(at).units(),
                    kept: 0,
                    at_us: self.at_us(),
                };
                if self.is_blocked() {
                    return state;
                }
                let ask = charge.ask(at);
                state.kept = ask.kept(policy.quota_ref().burst());
                state.numbers = ranked(policy, &level, ask, state.kept);
                #[cfg(feature = "test-util")]
                if let Some(numbers) = self.levels.set_numbers(at) {
                    state.numbers = numbers;
                }
                if is_divided(at) {
                    state.numbers.retry_us = covered_us;
                    state.numbers.reset_us = state.numbers.reset_us.max(covered_us);
                }
                // Who spends nothing of a queue has no place in it.
                if is_allowed && (state.cost > 0 || self.levels.marks.in_process == LOOK) {
                    state.delay_us = delay_us(policy, &level, state.cost);
                }
                state
            })
    }

    /// Returns the time until windows that are spent one after the other cover the cost: until the end
    /// of one of them, at which it has its whole amount again. 0 when they cover it now, and another
    /// policy denies.
    fn covered_us(&self, cascade: Cascade) -> u64 {
        let divided = || {
            let each = self.levels.iter(&self.policies).enumerate();
            let each = each.filter(|&(at, _)| !self.charge().is_beside(at));
            each.map(|(_, level)| level)
        };
        if divided().all(|(_, level)| level.fits) {
            return 0;
        }
        let level = |(policy, level): (&Policy, PolicyLevel)| {
            let found = numbers(policy, &level, 0);
            (policy.quota_ref().amount(), found.remaining, found.more_us)
        };
        let each: Vec<_> = divided().map(level).collect();
        let is_covered = |at_us: u64| {
            let left = each.iter().map(|&(amount, left, end_us)| match end_us {
                1.. if end_us <= at_us => amount,
                _ => left,
            });
            cascade.most(left) >= self.cost.units()
        };
        let ends = each.iter().map(|&(.., end_us)| end_us);
        ends.filter(|&end_us| is_covered(end_us)).min().unwrap_or(0)
    }

    /// Returns the state of the policy with this name. `None` when [`states`](Self::states) has no
    /// such policy.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<PolicyState<'_>> {
        self.states().find(|state| state.policy().name() == name)
    }

    /// Returns the policy that limits this key most. For a denial: the policy with the longest
    /// wait, or the policy that [blocks](Self::is_blocked). For an allowed request: the policy with
    /// the smallest remaining share of its burst, or, if shares are equal, the longest time until
    /// one more unit. `None` when [`states`](Self::states) is empty.
    #[must_use]
    pub fn strictest(&self) -> Option<PolicyState<'_>> {
        if self.policies.len() == 1 {
            return self.states().next();
        }
        strictest_of(self.states())
    }

    /// Returns the [strictest](Self::strictest) policy among those that are not
    /// [hidden](crate::Policy::hidden), for a response that shows one policy. `None` when all are.
    #[must_use]
    pub fn strictest_shown(&self) -> Option<PolicyState<'_>> {
        strictest_of(self.states().filter(|state| !state.policy().is_hidden()))
    }
}

/// Returns the state that limits a key most, see [`Decision::strictest`].
fn strictest_of<'a>(states: impl Iterator<Item = PolicyState<'a>>) -> Option<PolicyState<'a>> {
    states.max_by(|a, b| {
        // Compares the shares as products, which is exact.
        let share = |state: &PolicyState<'_>, of: &PolicyState<'_>| {
            u128::from(state.remaining()) * u128::from(of.policy().quota().burst())
        };
        let by_share = || share(b, a).cmp(&share(a, b));
        let by_more = || a.next_unit_after().cmp(&b.next_unit_after());
        let by_wait = || a.retry_after().cmp(&b.retry_after());
        a.is_exceeded()
            .cmp(&b.is_exceeded())
            .then_with(by_wait)
            .then_with(by_share)
            .then_with(by_more)
    })
}

/// Derives the numbers of a policy whose last `kept` units are left to higher priorities. Where the
/// rank can have nothing, the time until one unit more is that until it can have one.
fn ranked(policy: &Policy, level: &PolicyLevel, ask: Ask, kept: u64) -> Numbers {
    let found = numbers(policy, level, ask);
    if found.remaining >= kept {
        return found;
    }
    let one = numbers(
        policy,
        &PolicyLevel {
            fits: false,
            ..*level
        },
        Ask { cost: 1, ..ask },
    );
    Numbers {
        more_us: found.more_us.max(one.retry_us),
        ..found
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

/// The levels of all policies of a set at one instant, in the order of the set.
///
/// A decision is moved many times, so this type is small: it stores only the integers that each
/// algorithm uses, side by side. Up to six need no allocation, which is enough for
/// three policies of most algorithms.
#[derive(Clone, Debug, Default)]
pub struct PolicyLevels {
    len: u8,
    /// One bit for each policy, set when the policy denies.
    denying: u8,
    /// Those of the decision. They stand here because there is room: a decision that is eight bytes longer
    /// takes 20 instructions more.
    marks: Marks,
    integers: [u64; INLINE],
    /// The cost for each policy, when the costs differ. In place, because a customer and a priority
    /// have it with each check.
    costs: Option<EachCost>,
    /// What does not fit in place.
    more: Option<Box<More>>,
}

/// Marks a decision that the store did not make now.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// The code of the cause, 0 without one. An `Option` would hold the variant of every enum
    /// around a decision, and the decision would be copied in uneven pieces: an in-process check
    /// took 1.49 × governor's time instead of 1.40 ×.
    degraded: u8,
    /// 1 for a denial that was remembered in the process, 2 for a decision over leased units, 3 for
    /// a denial by a policy that blocks, 4 for a look that would be admitted, 0 for every other one.
    /// No `enum`, for the same reason.
    in_process: u8,
}

/// Keeps what few decisions have.
#[derive(Clone, Debug, Default)]
struct More {
    /// The integers after the first [`INLINE`].
    integers: [u64; MORE],
    /// The numbers of each policy, when a test has set them and no state has them.
    #[cfg(feature = "test-util")]
    numbers: Option<Vec<Numbers>>,
}

/// The number of integers that are stored without an allocation.
const INLINE: usize = 6;

/// The number of further integers: eight policies have at most four each.
const MORE: usize = 32 - INLINE;

impl PolicyLevels {
    /// Creates the levels of no policy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the levels of a set of one policy.
    #[inline]
    #[must_use]
    pub fn one(level: PolicyLevel) -> Self {
        let [first, second, third, fourth] = level.reading;
        Self {
            len: 1,
            denying: u8::from(!level.fits),
            marks: Marks::default(),
            integers: [first, second, third, fourth, 0, 0],
            costs: None,
            more: None,
        }
    }

    /// Creates the levels of all policies of a set, in its order.
    pub fn collect<'a>(levels: impl IntoIterator<Item = (&'a Policy, PolicyLevel)>) -> Self {
        let (mut all, mut at) = (Self::new(), 0);
        for (policy, level) in levels {
            all.denying |= u8::from(!level.fits) << all.len;
            all.len += 1;
            for &integer in &level.reading[..policy.reading_len()] {
                match all.integers.get_mut(at) {
                    Some(slot) => *slot = integer,
                    None => all.more.get_or_insert_default().integers[at - INLINE] = integer,
                }
                at += 1;
            }
        }
        all
    }

    /// Returns the levels that `change` returns for each policy.
    #[inline]
    pub fn map<'a>(
        &'a self,
        policies: &'a PolicySet,
        change: impl Fn(usize, &Policy, &PolicyLevel) -> PolicyLevel,
    ) -> Self {
        let each = self.iter(policies).enumerate();
        let mut each = each.map(|(at, (policy, level))| (policy, change(at, policy, &level)));
        match (self.len, each.next()) {
            (1, Some((_, alone))) => Self::one(alone),
            (_, first) => Self::collect(first.into_iter().chain(each)),
        }
    }

    /// Keeps the cost for each policy beside the levels, if the costs differ.
    #[inline]
    fn with_costs(self, costs: Option<EachCost>) -> Self {
        Self { costs, ..self }
    }

    /// Returns the levels of a decision with these marks.
    #[inline]
    fn with_marks(self, marks: Marks) -> Self {
        Self { marks, ..self }
    }

    /// Returns the cost for each policy, when the costs differ.
    #[inline]
    pub(crate) fn costs(&self) -> Option<&EachCost> {
        self.costs.as_ref()
    }

    /// Sets the numbers of each policy, whatever the levels say.
    #[cfg(feature = "test-util")]
    pub(crate) fn with_numbers(mut self, numbers: Vec<Numbers>) -> Self {
        self.more.get_or_insert_default().numbers = Some(numbers);
        self
    }

    /// Returns the numbers that a test has set for the policy at this place of the set.
    #[cfg(feature = "test-util")]
    pub(crate) fn set_numbers(&self, at: usize) -> Option<Numbers> {
        self.more.as_ref()?.numbers.as_ref()?.get(at).copied()
    }

    /// Returns `true` when no policy denies.
    #[inline]
    #[must_use]
    pub fn fit(&self) -> bool {
        self.denying == 0
    }

    /// Returns each policy with its level. Returns nothing for a decision that no policy took part
    /// in.
    #[inline]
    #[must_use]
    pub fn iter<'a>(
        &'a self,
        policies: &'a PolicySet,
    ) -> impl ExactSizeIterator<Item = (&'a Policy, PolicyLevel)> {
        let mut next = 0;
        policies
            .iter()
            .take(self.len.into())
            .enumerate()
            .map(move |(at, policy)| {
                let count = policy.reading_len();
                let reading = std::array::from_fn(|at| {
                    if at < count {
                        self.integer(next + at)
                    } else {
                        0
                    }
                });
                next += count;
                (
                    policy,
                    PolicyLevel {
                        fits: self.denying >> at & 1 == 0,
                        reading,
                    },
                )
            })
    }

    #[inline]
    fn integer(&self, at: usize) -> u64 {
        match (self.integers.get(at), &self.more) {
            (Some(integer), _) => *integer,
            (None, Some(more)) => more.integers[at - INLINE],
            (None, None) => 0,
        }
    }
}
