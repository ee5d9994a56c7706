//! Requests whose descriptors are decided in one step, or in several.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use proptest::prelude::*;
use tollgate::{
    Decision, Error, ErrorKind, Key, MemoryStore, PolicySet, Store,
    store::{Check, CheckFuture, Clock, StoreFuture},
    test_util::FaultyStore,
};
use tollgate_rules::{CheckError, Code, Descriptor, GlobalModes, RuleDecision, RuleLimiter, Rules};

use super::{envoy_rules, rules};

/// Counts the calls of another store.
#[derive(Clone)]
struct Counting {
    store: MemoryStore,
    /// Tells whether one step can decide over several branches.
    is_joint: bool,
    checks: Arc<AtomicUsize>,
    refunds: Arc<AtomicUsize>,
}

impl Counting {
    fn new(is_joint: bool, clock: &Clock) -> Self {
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self {
            store,
            is_joint,
            checks: Arc::default(),
            refunds: Arc::default(),
        }
    }

    /// Returns the checks and the refunds since the last call.
    fn calls(&self) -> (usize, usize) {
        (
            self.checks.swap(0, Ordering::Relaxed),
            self.refunds.swap(0, Ordering::Relaxed),
        )
    }
}

impl Store for Counting {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.checks.fetch_add(1, Ordering::Relaxed);
        if !self.can_decide(check.policies, check.key) {
            return StoreFuture::ready(Err(Error::new(ErrorKind::CrossSlot, "different slots")));
        }
        self.store.check(check)
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.refunds.fetch_add(1, Ordering::Relaxed);
        self.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn can_decide(&self, _: &PolicySet, key: &Key) -> bool {
        self.is_joint || key.branches().len() == 1
    }
}

const RULES: &str = "
domain: d
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: c, rate_limit: {limits: [{quota: 5/min}, {quota: 7/day}]}}
  - {key: e, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: f, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: open, on_outage: allow, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: leased, rate_limit: {unit: hour, requests_per_unit: 900, lease: true}}
  - {key: out, rate_limit: {unit: hour, requests_per_unit: 900, lease: true}}
  - {key: five, rate_limit: {limits: [{quota: 900/s, lease: true}, {quota: 900/min, lease: true}, {quota: 900/h, lease: true}]}}
";

fn on(store: &Counting) -> RuleLimiter {
    RuleLimiter::new(Rules::new(rules(RULES)), store.clone())
}

fn request(keys: &[&'static str]) -> Vec<Descriptor<'static>> {
    keys.iter()
        .map(|key| Descriptor::from([(*key, "x")]))
        .collect()
}

async fn codes(limiter: &RuleLimiter, request: &[Descriptor<'_>]) -> Vec<Code> {
    let decision = limiter.check("d", request, 1).await.expect("a decision");
    decision
        .verdict()
        .statuses()
        .iter()
        .map(|status| status.code())
        .collect()
}

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

#[tokio::test]
async fn descriptors_that_deny_alone_are_one_step_and_a_denied_one_charges_none() {
    let store = Counting::new(true, &Clock::manual(0));
    let limiter = on(&store);
    let request = request(&["a", "b", "c", "e"]);
    for _ in 0..2 {
        assert_eq!(codes(&limiter, &request).await, [OK; 4]);
    }
    assert_eq!(store.calls(), (2, 0));
    let denied = limiter.check("d", &request, 1).await.expect("a decision");
    assert!(denied.is_denied());
    assert_eq!(
        denied
            .verdict()
            .statuses()
            .iter()
            .map(|status| status.code())
            .collect::<Vec<_>>(),
        [OK, OVER, OK, OK]
    );
    assert_eq!(
        store.calls(),
        (1, 0),
        "nothing was charged, so nothing is refunded"
    );
    let left: Vec<_> = denied
        .verdict()
        .statuses()
        .iter()
        .map(|status| status.remaining())
        .collect();
    assert_eq!(left, [7, 0, 3, 7]);
    let usage: Vec<_> = denied
        .verdict()
        .statuses()
        .iter()
        .map(|status| status.usage())
        .collect();
    assert_eq!(
        usage
            .iter()
            .map(|usage| (usage.total, usage.within, usage.over))
            .collect::<Vec<_>>(),
        [(1, 1, 0), (1, 0, 1), (1, 1, 0), (1, 1, 0)]
    );
    // Each decision is that of its descriptor alone.
    let decisions: Vec<_> = denied
        .decisions()
        .iter()
        .map(|decision| decision.as_ref().expect("a decision"))
        .collect();
    assert_eq!(
        decisions
            .iter()
            .map(|one| (one.is_allowed(), one.policies().len()))
            .collect::<Vec<_>>(),
        [(true, 1), (false, 1), (true, 2), (true, 1)]
    );
    assert!(
        decisions
            .iter()
            .all(|one| one.policies().iter().all(|policy| policy.branch() == 1))
    );
    assert_eq!(denied.retry_after(), decisions[1].retry_after());
}

#[tokio::test]
async fn a_store_that_cannot_decide_branches_gets_a_step_for_each_and_refunds() {
    let store = Counting::new(false, &Clock::manual(0));
    let limiter = on(&store);
    for expected in [[OK, OK], [OK, OK], [OK, OVER]] {
        assert_eq!(codes(&limiter, &request(&["a", "b"])).await, expected);
    }
    assert_eq!(store.calls(), (6, 1));
    let decision = limiter
        .check("d", &request(&["a"]), 1)
        .await
        .expect("a decision");
    assert_eq!(decision.verdict().statuses()[0].remaining(), 6);
}

#[tokio::test]
async fn descriptors_that_do_not_deny_alone_have_steps_of_their_own() {
    let steps = async |keys: &[&'static str]| {
        let store = Counting::new(true, &Clock::manual(0));
        let _ = codes(&on(&store), &request(keys)).await;
        store.calls().0
    };
    assert_eq!(steps(&["a", "b"]).await, 1);
    assert_eq!(steps(&["a", "leased", "b"]).await, 2, "leased or not");
    assert_eq!(steps(&["leased", "out"]).await, 1);
    assert_eq!(
        steps(&["leased", "five", "out"]).await,
        2,
        "at most four leased policies"
    );
    assert_eq!(steps(&["a", "shadow", "b"]).await, 2);
    assert_eq!(steps(&["a", "quota", "b"]).await, 2);
    assert_eq!(
        steps(&["a", "open", "b"]).await,
        2,
        "another answer in an outage"
    );
    assert_eq!(
        steps(&["a", "a", "b"]).await,
        2,
        "one counter has one place in a step"
    );
    assert_eq!(
        steps(&["a", "b", "c", "e", "f"]).await,
        2,
        "a key has four branches"
    );
    assert_eq!(
        steps(&["never", "a", "b"]).await,
        1,
        "a rule of 0 requests counts nothing"
    );
    // A shadow rule that is over its limit denies no other.
    let store = Counting::new(true, &Clock::manual(0));
    let limiter = on(&store);
    for _ in 0..2 {
        assert_eq!(
            codes(&limiter, &request(&["a", "shadow", "b"])).await,
            [OK; 3]
        );
    }
    // What the shadow rule has spent comes back when the request is denied.
    assert_eq!(
        codes(&limiter, &request(&["a", "shadow", "b"])).await,
        [OK, OK, OVER]
    );
    let _ = store.calls();
    const ENVOY: &str = "{domain: d, descriptors: [
        {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}, {key: b, rate_limit: {unit: day, requests_per_unit: 9}}]}";
    let envoy = RuleLimiter::new(Rules::new(envoy_rules(ENVOY)), store.clone());
    let _ = envoy
        .check("d", &request(&["a", "b"]), 1)
        .await
        .expect("a decision");
    assert_eq!(
        store.calls(),
        (2, 0),
        "in the mode envoy each is charged alone"
    );
}

#[tokio::test]
async fn each_descriptor_of_a_step_has_its_own_units() {
    let store = Counting::new(true, &Clock::manual(0));
    let limiter = on(&store);
    let request = [
        Descriptor::from([("a", "x")]).with_hits(4),
        Descriptor::from([("b", "x")]),
        Descriptor::from([("f", "x")]).with_hits(0),
    ];
    let left = async || {
        let decision = limiter.check("d", &request, 1).await.expect("a decision");
        let statuses = decision.verdict().statuses();
        (
            decision.is_allowed(),
            statuses
                .iter()
                .map(|status| status.remaining())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(left().await, (true, vec![5, 1, 9]));
    assert_eq!(left().await, (true, vec![1, 0, 9]));
    assert_eq!(left().await, (false, vec![0, 0, 9]));
    assert_eq!(store.calls(), (3, 0));
    // Units that never fit are in a step of their own, and deny the request.
    let request = [
        Descriptor::from([("e", "x")]).with_hits(10),
        Descriptor::from([("f", "x")]),
    ];
    assert_eq!(codes(&limiter, &request).await, [OVER, OK]);
    assert_eq!(
        store.calls(),
        (1, 1),
        "the units that never fit are not sent"
    );
}

#[tokio::test]
async fn an_error_of_a_step_is_that_of_the_request() {
    let away = FaultyStore::default();
    away.fail();
    let set = || Rules::new(rules(RULES));
    let closed = RuleLimiter::builder(set(), away.clone())
        .on_outage(tollgate::Outage::Closed)
        .build();
    let error = closed
        .check("d", &request(&["a", "b"]), 1)
        .await
        .expect_err("no decision");
    assert!(matches!(error, CheckError::Store(_)), "{error}");
    let open = RuleLimiter::builder(set(), away.clone())
        .on_outage(tollgate::Outage::Open)
        .build();
    let decision = open
        .check("d", &request(&["a", "b"]), 1)
        .await
        .expect("a decision");
    assert!(decision.is_allowed());
    assert!(
        decision
            .decisions()
            .iter()
            .flatten()
            .all(|decision| decision.is_degraded())
    );
    let local = RuleLimiter::builder(set(), away.clone())
        .on_outage(tollgate::Outage::local(1))
        .build();
    for expected in [[OK, OK], [OK, OK], [OK, OVER]] {
        assert_eq!(codes(&local, &request(&["a", "b"])).await, expected);
    }
}

/// Answers a check only after other requests had their turn. Each call takes a millisecond of the
/// clock.
struct Slow {
    store: Counting,
    clock: Clock,
}

impl Store for Slow {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        self.clock.advance(std::time::Duration::from_millis(1));
        let decision = self.store.check(check);
        StoreFuture::pending(async move {
            tokio::task::yield_now().await;
            decision.await
        })
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        self.clock.advance(std::time::Duration::from_millis(1));
        self.store.refund(check, decision)
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        self.store.reset(check)
    }

    fn can_decide(&self, policies: &PolicySet, key: &Key) -> bool {
        self.store.can_decide(policies, key)
    }
}

#[tokio::test]
async fn requests_that_another_rule_denies_are_free_in_several_steps_at_once() {
    const TWO: &str = "
domain: d
descriptors:
- {key: a, rate_limit: {quota: 100/h, algorithm: token_bucket}}
- {key: b, rate_limit: {quota: 1/h, algorithm: fixed_window}}
- {key: c, shadow_mode: true, rate_limit: {quota: 100/h, algorithm: token_bucket}}
";
    for is_joint in [false, true] {
        for at_once in [1, 2, 16, 64] {
            let clock = Clock::manual(0);
            let store = Slow {
                store: Counting::new(is_joint, &clock),
                clock,
            };
            let limiter = RuleLimiter::new(Rules::new(rules(TWO)), store);
            assert_eq!(codes(&limiter, &request(&["b"])).await, [OK]);
            for _ in 0..128 / at_once {
                let denied = (0..at_once)
                    .map(|_| async { codes(&limiter, &request(&["a", "b", "c"])).await });
                for codes in futures_util::future::join_all(denied).await {
                    assert_eq!(codes, [OK, OVER, OK]);
                }
            }
            for key in ["a", "c"] {
                let look = [Descriptor::from([(key, "x")]).with_hits(0)];
                let left = limiter
                    .check("d", &look, 0)
                    .await
                    .expect("a decision")
                    .verdict()
                    .statuses()[0]
                    .remaining();
                // What accrues within the milliseconds of a request is not returned a second time.
                assert!(
                    left >= 99,
                    "{left} of 100 of {key} are left after {at_once} at once"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// One caller gets the same answers in one step and in a step for each descriptor.
    #[test]
    fn one_step_decides_as_a_step_for_each(
        requests in prop::collection::vec((prop::collection::vec((0..9_usize, 0..2_usize), 1..6), 0..4_u64, 0..1_000_u64), 1..40),
    ) {
        const KEYS: [&str; 9] = ["a", "b", "c", "e", "f", "never", "shadow", "quota", "open"];
        let clock = Clock::manual(0);
        let stores = [Counting::new(true, &clock), Counting::new(false, &clock)];
        let limiters = stores.each_ref().map(on);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        for (chosen, hits, seconds) in requests {
            clock.advance(std::time::Duration::from_secs(seconds));
            let mut chosen = chosen;
            chosen.sort_unstable();
            chosen.dedup();
            let request: Vec<_> = chosen
                .iter()
                .map(|&(key, value)| Descriptor::from([(KEYS[key], ["x", "y"][value])]).with_hits(hits))
                .collect();
            let [one, each] = limiters.each_ref().map(|limiter| {
                let decision = runtime.block_on(limiter.check("d", &request, 1)).expect("a decision");
                let statuses = decision.verdict().statuses();
                let codes: Vec<_> = statuses.iter().map(|status| (status.code(), status.usage().total)).collect();
                (decision.is_allowed(), codes)
            });
            prop_assert_eq!(&one, &each, "{:?}", request);
            let left = limiters.each_ref().map(|limiter| {
                let looks = KEYS.iter().flat_map(|key| ["x", "y"].map(|value| (*key, value)));
                let look = |(key, value)| {
                    let look = [Descriptor::from([(key, value)]).with_hits(0)];
                    runtime.block_on(limiter.check("d", &look, 0)).expect("a decision").verdict().statuses()[0].remaining()
                };
                looks.map(look).collect::<Vec<_>>()
            });
            prop_assert_eq!(&left[0], &left[1], "{:?}", request);
        }
    }
}

/// Returns what clients, layers and metrics see of the first descriptor of a request.
fn seen(decision: &RuleDecision) -> String {
    let states = |decision: &Decision| {
        let states: Vec<_> = decision
            .states()
            .map(|state| {
                let policy = state.policy();
                let waits = (state.retry_after(), state.reset_after());
                (policy.name().to_owned(), state.remaining(), waits)
            })
            .collect();
        (decision.is_allowed(), decision.cost(), states)
    };
    format!(
        "{:?} {:?} {} {:?}",
        decision.verdict().statuses()[0],
        decision.decisions()[0].as_ref().map(states),
        decision.is_allowed(),
        decision.retry_after(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A descriptor alone is charged without a step. One beside it that has no limit, or limits enough,
    /// changes nothing of its answer.
    #[test]
    fn a_descriptor_alone_is_answered_as_one_of_several(
        requests in prop::collection::vec((0..12_usize, 0..2_usize, 0..4_u64, 0..1_000_u64, prop::bool::weighted(0.2)), 1..40),
        modes in (any::<bool>(), any::<bool>()),
        is_joint in any::<bool>(),
        is_envoy in any::<bool>(),
        beside in prop::sample::select(&["none", "free", "plenty"][..]),
    ) {
        const NATIVE: [&str; 12] =
            ["a", "b", "c", "e", "f", "never", "shadow", "quota", "open", "leased", "five", "none"];
        const ENVOY: &str = "
domain: d
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: plenty, rate_limit: {unit: hour, requests_per_unit: 1000000}}
";
        let native = format!(
            "{RULES}  - {{key: free, rate_limit: {{unlimited: true}}}}\n  - {{key: plenty, rate_limit: {{quota: 1000000/h}}}}\n"
        );
        let clock = Clock::manual(0);
        let [alone, several] = [(), ()].map(|()| {
            let set = if is_envoy { envoy_rules(ENVOY) } else { rules(&native) };
            let store = Counting::new(is_joint, &clock);
            let modes = GlobalModes { shadow: modes.0, quota: modes.1 };
            RuleLimiter::builder(Rules::new(set), store).modes(modes).build()
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        for (key, value, hits, seconds, is_refund) in requests {
            clock.advance(std::time::Duration::from_secs(seconds));
            let key = if is_envoy { ["a", "b", "never", "shadow", "none"][key % 5] } else { NATIVE[key] };
            let descriptor = Descriptor::from([(key, ["x", "y"][value])]).with_hits(hits);
            let descriptor = if is_refund { descriptor.refunding() } else { descriptor };
            let other = Descriptor::from([(beside, "z")]).with_hits(1);
            let one = runtime.block_on(alone.check("d", std::slice::from_ref(&descriptor), 1)).expect("a decision");
            let two = [descriptor.clone(), other];
            let two = runtime.block_on(several.check("d", &two, 1)).expect("a decision");
            // In the global quota mode a request is denied if all are spent, so the other one counts.
            if !modes.1 {
                prop_assert_eq!(seen(&one), seen(&two), "{:?}", descriptor);
            } else {
                prop_assert_eq!(&one.verdict().statuses()[0], &two.verdict().statuses()[0], "{:?}", descriptor);
            }
        }
    }
}
