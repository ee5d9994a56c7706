//! The exceptions of a limiter: how callers grant, list and withdraw them, and the policies that they
//! put into force for a check.
//! See `store/exceptions/` for what an exception is.

use tollgate_model::{PolicyState, raw::KeyParts};

use super::{Limiter, LimiterInner};
use crate::{
    Cost, Decision, Error, Key, Policy, PolicySet,
    store::{Check, Exception, ExceptionCall, ExceptionReply, answer_by},
};

impl Limiter {
    /// Grants an exception: another quota of a policy for one key, until an end. Returns the exception
    /// that it replaces.
    ///
    /// All replicas apply it within three seconds to limiters of this name that are
    /// [published](crate::LimiterBuilder::published) or [take
    /// exceptions](crate::LimiterBuilder::with_exceptions). It ends by the clock of the store, also
    /// while the store is away. What the key has spent stays spent. A store keeps up to 4 096 of all
    /// limiters together.
    ///
    /// A [fresh start](crate::store::ExceptionChange::FreshStart) is recorded first, and is done when
    /// this returns: grant it again after an error.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when the policies of this limiter [cannot have
    /// it](Exception::fits). [`ErrorKind::Full`](crate::ErrorKind::Full) when the store has no room, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when it keeps no exceptions. Any other kind when the store cannot be reached.
    pub async fn grant_exception(&self, exception: Exception) -> Result<Option<Exception>, Error> {
        let exception = exception.at_limiter(self.name());
        exception.fits(&self.policies)?;
        let fresh = exception.is_fresh_start().then(|| exception.clone());
        let reply = self.exception_call(ExceptionCall::Grant(exception)).await?;
        if let Some(fresh) = fresh {
            self.start_fresh(&fresh).await?;
        }
        Ok(reply.exceptions.into_iter().next())
    }

    /// Removes the state of the policy and the key of an exception.
    async fn start_fresh(&self, exception: &Exception) -> Result<(), Error> {
        let named = |policy: &&Policy| policy.name() == exception.policy();
        let policy = self.policies.iter().find(named);
        let key = <Key as KeyParts>::read(exception.key());
        let (Some(policy), Some(key)) = (policy, key) else {
            // It fits the policies.
            return Ok(());
        };
        // The key is that of the branch alone.
        let policies = PolicySet::from(policy.clone().at_branch(1));
        let check = Check::new(&policies, &key, Cost::ZERO);
        let reset = self
            .inner
            .call(check, |check| self.inner.store.reset(check));
        reset.await
    }

    /// Withdraws the exception of a policy for a key, before its end. Returns it; `None` when there was
    /// none. A fresh start cannot be withdrawn.
    ///
    /// # Errors
    ///
    /// When the store keeps no exceptions, or cannot be reached.
    pub async fn withdraw_exception(
        &self,
        policy: &str,
        key: impl Into<Key>,
    ) -> Result<Option<Exception>, Error> {
        self.withdraw(policy, key.into().encoded()).await
    }

    /// Withdraws an exception, as [`exceptions`](Self::exceptions) lists it. Returns it; `None` when it
    /// has ended or was withdrawn, and for a fresh start.
    ///
    /// # Errors
    ///
    /// When the store keeps no exceptions, or cannot be reached.
    pub async fn withdraw_listed(&self, listed: &Exception) -> Result<Option<Exception>, Error> {
        self.withdraw(listed.policy(), listed.key()).await
    }

    /// Withdraws the exception of a policy for an encoded key.
    async fn withdraw(&self, policy: &str, key: &str) -> Result<Option<Exception>, Error> {
        let call = ExceptionCall::withdraw(self.name(), policy, key);
        let reply = self.exception_call(call).await?;
        Ok(reply.exceptions.into_iter().next())
    }

    /// Returns whether exceptions apply to this limiter: it is
    /// [published](crate::LimiterBuilder::published), or [takes](crate::LimiterBuilder::with_exceptions)
    /// them.
    #[must_use]
    pub fn takes_exceptions(&self) -> bool {
        self.inner.exceptions.is_some()
    }

    /// Lists the exceptions of limiters of this name that have not ended.
    ///
    /// # Errors
    ///
    /// When the store keeps no exceptions, or cannot be reached.
    pub async fn exceptions(&self) -> Result<Vec<Exception>, Error> {
        let mut reply = self.exception_call(ExceptionCall::List).await?;
        reply
            .exceptions
            .retain(|exception| exception.limiter() == self.name());
        Ok(reply.exceptions)
    }

    async fn exception_call(&self, call: ExceptionCall) -> Result<ExceptionReply, Error> {
        let deadline = self.inner.deadline();
        match self.store().exceptions(call).into_ready() {
            Ok(reply) => reply,
            Err(pending) => answer_by(deadline, pending).await,
        }
    }

    /// Returns the limiter with the policies that exceptions put into force for a key. `None` without
    /// an exception.
    #[inline]
    pub(super) fn in_force(&self, key: &Key) -> Option<Self> {
        let exceptions = self.inner.exceptions.as_ref()?;
        if !exceptions.is_any() {
            return None;
        }
        let policies = exceptions.policies(&self.policies, key)?;
        Some(self.with_policies(policies))
    }
}

impl LimiterInner {
    /// Returns whether a key may have an exception.
    #[inline]
    pub(super) fn has_exceptions(&self) -> bool {
        self.exceptions
            .as_ref()
            .is_some_and(|exceptions| exceptions.is_any())
    }

    /// Counts and shows that a decision used exceptions.
    #[cold]
    pub(super) fn note_exceptions(&self, check: Check<'_>, decision: &Decision) {
        let Some(exceptions) = &self.exceptions else {
            return;
        };
        if decision.cost() == Cost::ZERO {
            return;
        }
        let has_exception =
            |state: &PolicyState<'_>| exceptions.find(state.policy(), check.key).is_some();
        for state in decision.states().filter(has_exception) {
            self.fallback.used_exception(check.key, decision, &state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use super::*;
    use crate::{
        Algorithm, Costs, ErrorKind, MemoryStore, Policy, Priority, Quota,
        limiter::{LimiterBuilder, events::Event},
        store::{Clock, ExceptionChange},
    };

    const MINUTE: Duration = Duration::from_secs(60);

    fn exception(policy: &str, key: impl Into<Key>, change: ExceptionChange) -> Exception {
        Exception::new(policy, key, change, MINUTE)
            .by("ann")
            .because("a test")
    }

    fn builder(clock: &Clock) -> LimiterBuilder<()> {
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Limiter::builder(store).name("api").with_exceptions()
    }

    fn left(decision: &Decision, policy: &str) -> u64 {
        decision.state(policy).expect("the policy").remaining()
    }

    #[tokio::test]
    async fn every_call_of_a_key_has_its_exception_until_the_end() {
        let clock = Clock::manual(1);
        let limiter = builder(&clock)
            .policies(Policy::fixed_window("day", Quota::per_day(10)))
            .build();
        let limiter = &limiter;
        for _ in 0..4 {
            let _ = limiter.check("acme").await.expect("a decision");
        }
        let change = ExceptionChange::Quota(Quota::per_day(100));
        let granted = exception("day", "acme", change);
        limiter.grant_exception(granted).await.expect("a grant");

        // What was spent stays spent, and other keys are as before.
        let check = limiter.check("acme").await.expect("a decision");
        assert_eq!(left(&check, "day"), 95);
        let other = limiter.check("other").await.expect("a decision");
        assert_eq!(left(&other, "day"), 9);
        // A cost that only the exception admits, by each way.
        let check = limiter.check("acme").cost(20).await.expect("a decision");
        assert_eq!(left(&check, "day"), 75);
        let each = limiter.check("acme").cost([("day", 15)]).await;
        assert_eq!(left(&each.expect("a decision"), "day"), 60);
        let queued = limiter.check("acme").cost(15).queued().await;
        assert_eq!(left(&queued.expect("a decision"), "day"), 45);
        let waited = limiter.check("acme").cost(15).wait(MINUTE).await;
        assert_eq!(left(&waited.expect("a decision"), "day"), 30);
        let reserved = limiter.reserve("acme", 15).await.expect("a reservation");
        assert_eq!(left(reserved.decision(), "day"), 15);
        reserved.commit(5).await.expect("a commit");
        let peek = limiter.peek("acme").cost(20).await.expect("a peek");
        assert_eq!(peek.retry_after(), None);
        limiter.refund("acme", 20).await.expect("a refund");
        let peek = limiter.peek("acme").await.expect("a peek");
        assert_eq!(peek.state("day").expect("the policy").remaining(), 45);

        clock.advance(MINUTE - Duration::from_micros(1));
        assert!(limiter.in_force(&"acme".into()).is_some());
        clock.advance(Duration::from_micros(1));
        assert!(limiter.in_force(&"acme".into()).is_none());
        let denied = limiter.check("acme").await.expect("a decision");
        assert!(denied.is_denied(), "55 of 10 are spent");
        let error = limiter.check("acme").cost(20).await.expect_err("a cost");
        assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
        assert!(limiter.exceptions().await.expect("a list").is_empty());
        assert!(
            !limiter.inner.has_exceptions(),
            "a list drops what has ended"
        );
    }

    #[tokio::test]
    async fn an_exception_is_that_of_the_key_which_its_policy_meters() {
        let limiter = builder(&Clock::manual(1))
            .policies([
                Policy::fixed_window("tenant", Quota::per_day(10)).at_level(1),
                Policy::fixed_window("user", Quota::per_day(10)),
                Policy::fixed_window("address", Quota::per_day(10)).at_branch(2),
            ])
            .build();
        let ann = Key::new("acme").child("ann");
        for (policy, key) in [
            ("tenant", Key::new("acme")),
            ("user", ann.clone()),
            ("address", Key::new("192.0.2.7")),
        ] {
            let twice = exception(policy, key, ExceptionChange::Factor(2.0));
            limiter.grant_exception(twice).await.expect("a grant");
        }
        let all = ann.with_branch("192.0.2.7");
        let decision = limiter.check(all).await.expect("a decision");
        let lefts = ["tenant", "user", "address"].map(|name| left(&decision, name));
        assert_eq!(lefts, [19; 3]);
        let bob = Key::new("acme").child("bob").with_branch("192.0.2.8");
        let decision = limiter.check(bob).await.expect("a decision");
        let lefts = ["tenant", "user", "address"].map(|name| left(&decision, name));
        assert_eq!(lefts, [18, 9, 9]);
    }

    /// A fresh start is that of a key which was never seen, for this key and policy alone, and takes no
    /// exception along.
    #[tokio::test]
    async fn after_a_fresh_start_the_policy_has_counted_nothing_by_any_algorithm() {
        for algorithm in crate::testing::ALGORITHMS {
            let clock = Clock::manual(1_700_000_000_000_000);
            let policy = Policy::try_new("plan", algorithm, Quota::per_hour(10)).expect("a policy");
            let limiter = builder(&clock)
                .policies([policy, Policy::fixed_window("other", Quota::per_hour(10))])
                .build();
            let twice = exception("plan", "acme", ExceptionChange::Factor(2.0));
            limiter.grant_exception(twice).await.expect("a grant");
            for key in ["acme", "other"] {
                for _ in 0..4 {
                    let _ = limiter.check(key).await.expect("a decision");
                    clock.advance(Duration::from_millis(300));
                }
            }
            let held = limiter.reserve("acme", 2).await.expect("an answer");
            let fresh = || exception("plan", "acme", ExceptionChange::FreshStart);
            assert_eq!(
                limiter.grant_exception(fresh()).await.expect("a grant"),
                None
            );
            let state = async |key: &str, policy: &str| {
                let peek = limiter.peek(key).await.expect("a peek");
                let state = peek.state(policy).expect("the policy");
                (
                    state.remaining(),
                    state.spent(),
                    state.reset_after(),
                    state.retry_after(),
                )
            };
            let seen = state("acme", "plan").await;
            let twice = exception("plan", "never", ExceptionChange::Factor(2.0));
            limiter.grant_exception(twice).await.expect("a grant");
            assert_eq!(seen, state("never", "plan").await, "{algorithm:?}");
            assert_eq!(state("acme", "other").await.1, 6, "{algorithm:?}");
            assert!(
                state("other", "plan").await.1 > 0
                    || matches!(algorithm, Algorithm::Lockout { .. }),
                "{algorithm:?}"
            );
            drop(held);

            let listed = limiter.exceptions().await.expect("a list");
            assert_eq!(listed.len(), 3, "{listed:?}");
            let withdrawn = limiter.withdraw_exception("plan", "acme").await;
            let withdrawn = withdrawn.expect("an answer").expect("an exception");
            assert_eq!(withdrawn.change(), ExceptionChange::Factor(2.0));
            let listed = limiter.exceptions().await.expect("a list");
            let record = listed
                .iter()
                .find(|listed| listed.is_fresh_start())
                .expect("a record");
            assert_eq!((record.author(), record.reason()), ("ann", "a test"));
            assert_eq!(
                limiter.withdraw_listed(record).await.expect("an answer"),
                None
            );
            let again = limiter.grant_exception(fresh()).await.expect("a grant");
            assert!(again.expect("the one before").is_fresh_start());
        }
    }

    /// A fresh start is that of an outer level, or of a branch, where the policy meters these.
    #[tokio::test]
    async fn a_fresh_start_is_that_of_the_key_which_its_policy_meters() {
        let limiter = builder(&Clock::manual(1))
            .policies([
                Policy::fixed_window("tenant", Quota::per_day(10)).at_level(1),
                Policy::fixed_window("user", Quota::per_day(10)),
                Policy::fixed_window("address", Quota::per_day(10)).at_branch(2),
            ])
            .build();
        let ann = Key::new("acme").child("ann");
        let all = ann.clone().with_branch("192.0.2.7");
        let _ = limiter.check(&all).await.expect("a decision");
        let mut expected = [9, 9, 9];
        for (at, (policy, key)) in [
            ("tenant", Key::new("acme")),
            ("user", ann.clone()),
            ("address", Key::new("192.0.2.7")),
        ]
        .into_iter()
        .enumerate()
        {
            let fresh = exception(policy, key, ExceptionChange::FreshStart);
            limiter.grant_exception(fresh).await.expect("a grant");
            expected[at] = 10;
            let peek = limiter.peek(&all).await.expect("a peek");
            let left = |name| peek.state(name).expect("the policy").remaining();
            assert_eq!(
                ["tenant", "user", "address"].map(left),
                expected,
                "{policy}"
            );
        }
        let wrong = exception("user", "acme", ExceptionChange::FreshStart).at_key("a b");
        let error = limiter.grant_exception(wrong).await.expect_err("a key");
        assert!(
            error.to_string().starts_with("key of an exception must be"),
            "{error}"
        );
    }

    /// Limiters that differ in their policies alone have one name, and the same exceptions.
    #[tokio::test]
    async fn the_factor_is_that_of_the_quota_of_the_tenant() {
        let policy = Policy::token_bucket("api", Quota::per_day(10));
        let limiter = builder(&Clock::manual(1)).policies(policy.clone()).build();
        let half = exception("api", "gold", ExceptionChange::Factor(0.5));
        limiter.grant_exception(half).await.expect("a grant");
        let quota = policy.with_quota(Quota::per_day(500)).expect("a policy");
        let gold = limiter.with_policies(quota);
        let decision = gold.check("gold").await.expect("a decision");
        assert_eq!(left(&decision, "api"), 249);
        let plain = limiter.peek("gold").await.expect("a peek");
        let plain = plain.state("api").expect("the policy").policy().quota();
        assert_eq!(plain, Quota::per_day(5));
        // The algorithm of another limiter may refuse what is granted: it then decides as before.
        let window = limiter.with_policies(Policy::fixed_window("api", Quota::per_day(10)));
        let burst = ExceptionChange::Quota(Quota::per_day(5).with_burst(9));
        let granted = exception("api", "gold", burst);
        limiter.grant_exception(granted).await.expect("a grant");
        let decision = window.check("gold").await.expect("a decision");
        assert_eq!(left(&decision, "api"), 9);
    }

    #[tokio::test]
    async fn costs_cascade_and_ranks_have_shares_as_under_a_policy_of_that_quota() {
        let clock = Clock::manual(1);
        let policy = |units| Policy::fixed_window("plan", Quota::per_day(units));
        let pool = || Policy::fixed_window("pool", Quota::per_day(1_000)).at_level(1);
        let excepted = builder(&clock).policies([policy(100), pool()]).build();
        let plain = builder(&clock).policies([policy(120), pool()]).build();
        let ann = Key::new("acme").child("ann");
        let more = exception("plan", ann.clone(), ExceptionChange::Factor(1.2));
        excepted.grant_exception(more).await.expect("a grant");
        let job = excepted.reserve(ann.clone(), Costs::cascading(130)).await;
        let job = job.expect("an answer").into_result().expect("units");
        let gave = |policy| job.decision().state(policy).expect("the policy").cost();
        assert_eq!(
            (gave("plan"), gave("pool")),
            (Cost::new(120), Cost::new(10))
        );
        excepted.reset(ann.clone()).await.expect("a reset");
        for priority in [Priority::BACKGROUND, Priority::NORMAL, Priority::CRITICAL] {
            let costs = Costs::new(Cost::ONE).with_priority(priority);
            let mut admitted = [0; 2];
            for (limiter, admitted) in [&excepted, &plain].into_iter().zip(&mut admitted) {
                while limiter
                    .check(&ann)
                    .cost(costs.clone())
                    .await
                    .expect("a decision")
                    .is_allowed()
                {
                    *admitted += 1;
                }
            }
            assert_eq!(admitted[0], admitted[1], "{priority:?}");
        }
    }

    #[tokio::test]
    async fn each_decision_by_an_exception_raises_an_event() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let observer = Arc::clone(&seen);
        let limiter = builder(&Clock::manual(1))
            .policies([
                Policy::fixed_window("day", Quota::per_day(1)),
                Policy::fixed_window("hour", Quota::per_hour(5)),
            ])
            .observe(move |event: &Event<'_>| {
                if let Event::Excepted(of) = event {
                    let quota = of.policy().quota().amount();
                    let key = of.key().encoded().to_owned();
                    let seen = (key, of.policy().name().to_owned(), quota, of.remaining());
                    observer.lock().unwrap().push(seen);
                }
            })
            .build();
        let change = ExceptionChange::Quota(Quota::per_day(2));
        let granted = exception("day", "acme", change);
        limiter.grant_exception(granted).await.expect("a grant");
        for _ in 0..3 {
            let _ = limiter.check("acme").await.expect("a decision");
        }
        let _ = limiter.peek("acme").await.expect("a peek");
        let _ = limiter.check("other").await.expect("a decision");
        let blocked = exception("day", "bad", ExceptionChange::Quota(Quota::per_day(0)));
        limiter.grant_exception(blocked).await.expect("a grant");
        let costs = Costs::new(Cost::ONE);
        let denied = limiter.check("bad").cost(costs).await.expect("a decision");
        assert!(denied.is_denied());
        let of = |key: &str, quota, left| (key.to_owned(), "day".to_owned(), quota, left);
        let expected = [
            of("acme", 2, 1),
            of("acme", 2, 0),
            of("acme", 2, 0),
            of("bad", 0, 0),
        ];
        assert_eq!(*seen.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_limiter_that_takes_no_exceptions_applies_none() {
        let store = MemoryStore::new();
        let policy = || Policy::fixed_window("day", Quota::per_day(10));
        let build = |builder: LimiterBuilder<()>| builder.name("api").policies(policy());
        let closed = build(Limiter::builder(store.clone())).build();
        let published = build(Limiter::builder(store)).published().build();
        let twice = exception("day", "acme", ExceptionChange::Factor(2.0));
        closed.grant_exception(twice).await.expect("a grant");
        let decision = closed.check("acme").await.expect("a decision");
        assert_eq!(left(&decision, "day"), 9);
        let decision = published.check("acme").await.expect("a decision");
        assert_eq!(left(&decision, "day"), 18);
    }
}
