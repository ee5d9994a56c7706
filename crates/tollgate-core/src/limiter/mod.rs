//! Checks keys against policies on a store: what stands beside [`Limiter`], such as calls, states,
//! events, and the keys that are denied most.
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
//! let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_minute(10)));
//! let decision = limiter.check("acme").cost(4).await?;
//! assert_eq!(decision.state("api").map(|state| state.remaining()), Some(6));
//! # Ok(()) }
//! ```

// A limiter and the way of one check through it: limits of the input, the store, the deadline, and
// the fallback. What callers build around a check is in `ask.rs`, what a store does is in `store/`.

// The options, the shares, the outage rule and the commits that wait are parts of a limiter, and call its
// store through it: `builder`, `fair_shares`, `outage/fallback` and `unsettled` know this file as it
// knows them.

mod ask;
mod blocking;
mod builder;
mod denied_keys;
pub mod events;
mod exceptions;
mod fair_shares;
mod fifo;
pub(crate) mod growing;
mod handle;
mod metrics;
mod outage;
pub(crate) mod permits;
pub(crate) mod reservation;
mod selection;
pub(crate) mod tenants;
mod unsettled;
mod wait;

use std::{sync::Arc, time::Duration};

#[doc(inline)]
pub use tollgate_model::{Entry, IntoPolicySet, KeyState, PolicyState};

use tollgate_model::raw::{ChargeRef, DecisionParts, PolicySetParts, TAG_BYTES};

use crate::{
    Cost, Decision, Error, Key, MemoryStore, PolicySet, Store,
    limiter::{
        builder::WAITING_DEADLINE, fair_shares::FairShares, outage::Fallback, unsettled::Unsettled,
        wait::queue::WaitQueues,
    },
    store::{
        Check, CheckFuture, Concludes, Deadline, ExceptionsInForce, Publication, RulesInForce,
        StoreFuture, answer_by, answer_to,
    },
};
pub use ask::{CheckBuilder, PeekBuilder, RefundBuilder};
pub use builder::LimiterBuilder;
pub use denied_keys::{DeniedKey, DeniedKeys};
pub use handle::LimiterHandle;
pub use outage::{Outage, Replicas};
pub use selection::{Limited, Selection};
pub use tenants::LimiterFuture;
pub use wait::leave_queues;

/// Checks keys against a set of policies. A [`Store`] keeps the counters.
///
/// Each call names a key, and returns a builder or a future. Nothing happens before it is awaited.
///
/// | to | await |
/// |---|---|
/// | spend one unit of every policy, or be denied | [`check(key)`](Self::check) |
/// | spend several units, or a different number from each policy | `check(key).`[`cost(costs)`](CheckBuilder::cost) |
/// | wait until the units are available, instead of being denied | `check(key).`[`wait(longest)`](CheckBuilder::wait) |
/// | record who spent, in a sliding log | `check(key).`[`tag(user)`](CheckBuilder::tag), and later [`entries(key, limit)`](Self::entries) |
/// | see what is left, and spend nothing | [`peek(key)`](Self::peek) |
/// | see when a number of units will fit | `peek(key).`[`cost(costs)`](PeekBuilder::cost) |
/// | give back what was not used | [`refund(key, costs)`](Self::refund)`.`[`of(&decision)`](RefundBuilder::of) |
/// | charge an estimate, and settle it later | [`reserve(key, estimate)`](Self::reserve) |
/// | make a key fresh | [`reset(key)`](Self::reset) |
///
/// The options of a check combine: `check(key).cost(costs).tag(user).wait(longest)`. In a thread
/// without a runtime, [`block_on`](Self::block_on) runs any of these calls to its end.
///
/// Calls to a store outside the process, and waits for a quota, need a tokio runtime with timers,
/// and fail with [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) without one.
///
/// A limiter is cheap to clone. Clones share state, and so do limiters that differ in their
/// policies alone: see [`with_policies`](Self::with_policies). Put limits on the same key into one
/// limiter: they are decided in one atomic step, and either all are charged or none. Two limiters
/// with the same policy name on one store share the counters of that policy.
///
/// ```
/// use tollgate::{Cost, ErrorKind, Limiter, MemoryStore, Policy, Quota};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     Policy::token_bucket("rows", Quota::per_second(100)),
/// );
/// let decision = limiter.check("acme").cost(Cost::new(30)).await?;
/// assert_eq!(decision.state("rows").unwrap().remaining(), 70);
///
/// // A cost that can never fit is an error, not a denial: no wait would help.
/// let error = limiter.check("acme").cost(Cost::new(101)).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
/// # Ok(()) }
/// ```
#[doc(alias = "throttle")]
#[doc(alias = "rate limiter")]
#[derive(Clone)]
pub struct Limiter {
    /// Shared by all limiters that differ in their policies alone.
    inner: Arc<LimiterInner>,
    policies: PolicySet,
}

impl Limiter {
    /// Makes the key fresh: every policy has its whole burst again.
    ///
    /// Resets only the states that belong to this key alone. The outer levels of a nested key are
    /// shared with other keys and stay as they are. Reset an outer level with the key of that
    /// level, [`Key::parent`]:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let policies = [
    ///     Policy::fixed_window("tenant", Quota::per_hour(100)).at_level(1),
    ///     Policy::fixed_window("user", Quota::per_hour(10)),
    /// ];
    /// let limiter = Limiter::new(MemoryStore::new(), policies);
    /// let ann = Key::new("acme").child("ann");
    /// let _ = limiter.check(&ann).await?;
    ///
    /// limiter.reset(&ann).await?;
    /// let state = limiter.peek(&ann).await?;
    /// assert_eq!(state.state("user").unwrap().remaining(), 10);
    /// assert_eq!(state.state("tenant").unwrap().remaining(), 99);
    ///
    /// limiter.reset(Key::new("acme")).await?;
    /// assert_eq!(limiter.peek(&ann).await?.state("tenant").unwrap().remaining(), 100);
    /// # Ok(()) }
    /// ```
    ///
    /// Denials that this process remembers end at once. Another process that has denied the key may
    /// go on denying it for up to 1 s: see
    /// `deny_cache_cap`.
    ///
    /// If the key has [branches](Key::with_branch), each branch is reset as a key of its own. This
    /// also gives back the units that the branch spent together with other keys. To reset one
    /// branch only, use that branch as the key of a limiter [with the
    /// policies](Self::with_policies) of the branch.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached before the deadline.
    pub async fn reset(&self, key: impl Into<Key>) -> Result<(), Error> {
        let key = key.into();
        self.inner
            .call(Check::new(&self.policies, &key, Cost::ZERO), |check| {
                self.inner.store.reset(check)
            })
            .await
    }

    /// Lists up to `limit` units that the [sliding log](crate::Algorithm::SlidingLog) of this
    /// limiter counts now, newest first: when each was spent, and its [tag](CheckBuilder::tag).
    ///
    /// If several policies are logs, the log with the longest period is listed. A log that meters
    /// an [outer level](crate::Policy::at_level) lists the units of all keys within that level.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when no policy is a sliding log,
    /// or when the store cannot list entries. [`ErrorKind::KeyLevels`](crate::ErrorKind::KeyLevels)
    /// when the key has fewer levels or branches than a policy meters. Any other kind when the
    /// store cannot be reached before the deadline.
    pub async fn entries(&self, key: impl Into<Key>, limit: usize) -> Result<Vec<Entry>, Error> {
        let key = key.into();
        let in_force = self.in_force(&key);
        let policies = &in_force.as_ref().unwrap_or(self).policies;
        policies.reaches(&key)?;
        let check = Check::new(policies, &key, Cost::ZERO);
        self.inner
            .call(check, |check| self.inner.store.entries(check, limit))
            .await
    }

    /// Returns whether the store decides all policies for this key in one step.
    ///
    /// Returns `false` only in a Redis Cluster, for a key whose [branches](Key::with_branch) lie in
    /// different slots. A check then fails with
    /// [`ErrorKind::CrossSlot`](crate::ErrorKind::CrossSlot). Instead, check each branch with a
    /// limiter of its own, and refund the others when one is denied.
    ///
    /// ```
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let quota = Quota::per_second(10);
    /// let policies = [Policy::token_bucket("address", quota), Policy::token_bucket("api-key", quota).at_branch(2)];
    /// let limiter = Limiter::new(MemoryStore::new(), policies);
    /// assert!(limiter.can_decide(&Key::new("192.0.2.7").with_branch("acme")));
    /// ```
    #[must_use]
    pub fn can_decide(&self, key: &Key) -> bool {
        self.inner.store.can_decide(&self.policies, key)
    }

    /// Returns the name of the limiter in log lines and metrics: see [`LimiterBuilder::name`].
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.fallback.name()
    }

    /// Returns the policies that are checked together.
    #[must_use]
    pub fn policies(&self) -> &PolicySet {
        &self.policies
    }

    /// Returns a limiter with other policies, which shares everything else with this one: the
    /// store, the name, the deadline, the answers in an [outage](crate::Outage), the queues of
    /// waiting callers and the metrics.
    ///
    /// Use it for quotas that differ from tenant to tenant. The returned limiter has the size of
    /// two pointers, and the call allocates nothing but the policy set. Policies of the same name
    /// share their counters: units that a key has spent under one quota stay spent under the other.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    ///
    /// const API: Policy = Policy::token_bucket("api", Quota::per_minute(10));
    /// let limiter = Limiter::new(MemoryStore::new(), API);
    /// let acme = limiter.with_policies(API.with_quota(Quota::per_minute(500))?);
    ///
    /// assert_eq!(acme.check("acme").await?.state("api").unwrap().remaining(), 499);
    /// assert_eq!(limiter.check("other").await?.state("api").unwrap().remaining(), 9);
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// When [`PolicySet::try_new`] refuses the policies. For policies that are known only at run
    /// time, call `try_new` and pass the set.
    #[must_use]
    pub fn with_policies(&self, policies: impl IntoPolicySet) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            policies: policies.into_policy_set(),
        }
    }

    /// Returns whether decisions are made inside this process, without waiting.
    #[must_use]
    pub fn is_in_process(&self) -> bool {
        self.inner.is_in_process
    }

    /// Returns whether the limiter has [fair shares](LimiterBuilder::fair_shares): whether its checks
    /// may name a [customer](crate::Costs::with_customer).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use tollgate::{Cost, Costs, Customer, ErrorKind, Limiter, MemoryStore, Policy, Quota};
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_hour(100)));
    /// assert!(!limiter.has_fair_shares());
    /// let costs = Costs::new(Cost::ONE).with_customer(Customer::new("acme"));
    /// let error = limiter.check("all").cost(costs).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Config);
    /// assert!(error.to_string().contains("the limiter has no fair shares"));
    /// # }
    /// ```
    #[must_use]
    pub fn has_fair_shares(&self) -> bool {
        self.inner.fair_shares.is_some()
    }

    /// Shows operators that this limiter enforces these rules, as long as somebody holds a clone of
    /// them: see [`Store::publish_rules`].
    ///
    /// The limiter of `tollgate-rules` calls it itself. Call it for rules of your own, from which the
    /// policies of [`with_policies`](Self::with_policies) come.
    ///
    /// ```
    /// use tollgate::{
    ///     Limiter, MemoryStore, Policy, Quota,
    ///     store::{RulesDigest, RulesInForce},
    /// };
    ///
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("api", Quota::per_hour(9)));
    /// let plans = RulesInForce::new("the table of plans");
    /// plans.enforce(RulesDigest::new([7; 8]));
    /// limiter.publish_rules(&plans);
    /// assert_eq!(plans.digest().unwrap().to_string(), "0707070707070707");
    /// ```
    pub fn publish_rules(&self, rules: &RulesInForce) {
        self.store().publish_rules(rules);
    }

    /// Returns whether both limiters decide alike on the same state.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) && self.policies == other.policies
    }

    pub(crate) fn inner(&self) -> &Arc<LimiterInner> {
        &self.inner
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    pub(crate) fn wait_queues(&self) -> &WaitQueues {
        &self.inner.wait_queues
    }
}

crate::debug_fields! { Limiter: name = .name(), policies, deadline = .inner.timeout, .. }

/// Checks keys against any policies. Limiters that differ in their policies alone share it.
pub(crate) struct LimiterInner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) is_in_process: bool,
    pub(crate) timeout: Duration,
    /// The time for a check that may still wait for [`WAITING_DEADLINE`](builder::WAITING_DEADLINE).
    waiting_deadline: Duration,
    pub(crate) fallback: Fallback,
    wait_queues: WaitQueues,
    unsettled: Unsettled,
    /// Shows the limiter to operators, if it is published.
    publication: Option<Publication>,
    /// The exceptions of operators, if the limiter takes any.
    exceptions: Option<ExceptionsInForce>,
    /// `None` when customers are admitted as they come.
    fair_shares: Option<FairShares>,
}

impl LimiterInner {
    #[inline]
    fn check(
        self: &Arc<Self>,
        policies: &PolicySet,
        key: &Key,
        charge: ChargeRef<'_>,
        tag: &[u8],
    ) -> CheckFuture {
        self.check_within(policies, key, charge, tag, Duration::ZERO)
    }

    /// Checks for a caller that may still wait for `left`.
    fn check_within(
        self: &Arc<Self>,
        policies: &PolicySet,
        key: &Key,
        charge: ChargeRef<'_>,
        tag: &[u8],
        left: Duration,
    ) -> CheckFuture {
        let check = Check::of(policies, key, charge).with_tag(tag);
        if let Err(unasked) = is_for_store(check) {
            return self.answer_at_once(check, unasked);
        }
        if self.is_in_process {
            if charge.each.is_none() && !self.fallback.counts() {
                // Returned as it is: a copy would take a fifth of the time of the decision.
                return self.store.check(check);
            }
            let answer = self.store.check(check);
            if let Some(answer) = answer.as_ready() {
                self.answered(check, answer);
            }
            return answer;
        }
        self.check_remote(
            check,
            if left < WAITING_DEADLINE {
                self.timeout
            } else {
                self.waiting_deadline
            },
        )
    }

    /// Checks a store outside of the process.
    // Not inlined: a check in the process would pay for the larger stack frame.
    #[inline(never)]
    fn check_remote(self: &Arc<Self>, check: Check<'_>, timeout: Duration) -> CheckFuture {
        let check = check.with_deadline(Deadline::after(timeout));
        let answer = self.store.check(check);
        if let Some(Ok(decision)) = answer.as_ready() {
            // Returned as it is: see above.
            self.answered(check, Ok(decision));
            return answer;
        }
        match answer.into_pending(check) {
            Ok(outcome) => StoreFuture::ready(self.conclude(check, outcome)),
            Err((answer, kept)) => StoreFuture::awaited(answer, kept, Arc::clone(self) as _),
        }
    }

    /// Answers a check without the store. The answer counts for no customer's share.
    #[cold]
    fn answer_at_once(&self, check: Check<'_>, unasked: Unasked) -> CheckFuture {
        let answer = unasked.answer(check);
        self.fallback.answered(check, answer.as_ref());
        if let Ok(decision) = &answer
            && self.has_exceptions()
        {
            self.note_exceptions(check, decision);
        }
        StoreFuture::ready(answer)
    }

    /// Returns the answer to a check: what the store decided, or what the fallback does where the
    /// store failed, in an outage by its share with `by_share`.
    fn answer(
        &self,
        check: Check<'_>,
        outcome: Result<Decision, Error>,
        by_share: impl FnOnce(&MemoryStore, Check<'_>) -> Decision,
    ) -> Result<Decision, Error> {
        let answer = match outcome {
            Err(error) if !self.is_in_process => self.fallback.decide(check, error, by_share),
            outcome => outcome,
        };
        self.answered(check, answer.as_ref());
        answer
    }

    /// Notes the answer to a check that the store was asked. Each passes here once, but where nobody
    /// counts. A peek is no check.
    #[inline]
    fn answered(&self, check: Check<'_>, answer: Result<&Decision, &Error>) {
        self.fallback.answered(check, answer);
        if let Ok(decision) = answer {
            self.count_share(check, decision);
            if self.has_exceptions() {
                self.note_exceptions(check, decision);
            }
        }
    }

    /// Waits until the deadline for what a store answers to a check, and lets `end` make another answer
    /// of it. A check alone waits without the box that this has, see `check_remote`.
    fn ask<R: Send + 'static>(
        self: &Arc<Self>,
        check: Check<'_>,
        answer: CheckFuture,
        end: impl FnOnce(&Self, Check<'_>, Result<Decision, Error>) -> Result<R, Error> + Send + 'static,
    ) -> StoreFuture<R> {
        match answer.into_pending(check) {
            Ok(outcome) => StoreFuture::ready(end(self, check, outcome)),
            Err((answer, kept)) => {
                let inner = Arc::clone(self);
                StoreFuture::pending(async move {
                    let outcome = answer_to(&kept, answer).await;
                    end(&inner, kept.check(), outcome)
                })
            }
        }
    }

    /// Calls the store, and waits for its answer until the deadline.
    fn call<T: Send + Unpin + 'static>(
        &self,
        check: Check<'_>,
        call: impl FnOnce(Check<'_>) -> StoreFuture<T>,
    ) -> StoreFuture<T> {
        let deadline = self.deadline();
        match call(Check { deadline, ..check }).into_ready() {
            Ok(answer) => StoreFuture::ready(answer),
            Err(pending) => StoreFuture::pending(answer_by(deadline, pending)),
        }
    }

    /// Returns the deadline of a call that is made now. A store in the process has none.
    fn deadline(&self) -> Option<Deadline> {
        (!self.is_in_process).then(|| Deadline::after(self.timeout))
    }
}

impl Concludes<Decision> for LimiterInner {
    fn conclude(
        &self,
        check: Check<'_>,
        outcome: Result<Decision, Error>,
    ) -> Result<Decision, Error> {
        self.answer(check, outcome, MemoryStore::decide)
    }
}

/// Says why a store is not asked.
enum Unasked {
    /// A policy blocks.
    Blocked,
    /// The check is not valid.
    Invalid(Error),
}

impl Unasked {
    /// Returns the answer to the check.
    fn answer(self, check: Check<'_>) -> Result<Decision, Error> {
        match self {
            Self::Blocked => Ok(Decision::blocked(check.policies, check.charge())),
            Self::Invalid(error) => Err(error),
        }
    }
}

/// Returns whether the store decides a check.
#[inline]
fn is_for_store(check: Check<'_>) -> Result<(), Unasked> {
    let Check { policies, tag, .. } = check;
    if tag.len() > TAG_BYTES {
        return Err(Unasked::Invalid(long_tag(tag)));
    }
    if policies.is_blocked() {
        return Err(Unasked::Blocked);
    }
    let admits = policies.admits(check.charge());
    admits
        .and_then(|()| policies.reaches(check.key))
        .map_err(Unasked::Invalid)
}

#[cold]
fn long_tag(tag: &[u8]) -> Error {
    let length = tag.len();
    Error::config(format!(
        "tag must be at most {TAG_BYTES} bytes, got {length}"
    ))
}
