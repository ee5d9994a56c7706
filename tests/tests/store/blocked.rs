//! An amount of 0 blocks: every check is denied, without a wait and without a call of the store.

use std::time::Duration;

use tollgate::{
    Cost, Key, Lease, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota, Store,
    limiter::DeniedKeys,
    reservation::{ReservationId, Settlement},
    store::Check,
    testing::ALGORITHMS,
};
use tollgate_test_support::{PATIENCE, connected_store, decided, decided_at};
use tollgate_tests::RedisServer;

const DAY: Policy = Policy::fixed_window("day", Quota::per_day(10));
const NOTHING: Quota = Quota::per_minute(0);

/// Returns blocked sets of every algorithm: alone, beside a policy that does not block, and leased.
fn blocked_sets() -> Vec<PolicySet> {
    let mut sets = vec![PolicySet::from(
        Policy::token_bucket("leased", NOTHING).leased(Lease::new()),
    )];
    for algorithm in ALGORITHMS {
        let Ok(policy) = Policy::try_new("nothing", algorithm, NOTHING) else {
            continue;
        };
        sets.extend([policy.clone().into(), [DAY, policy].into()]);
    }
    assert!(sets.len() > 14, "{}", sets.len());
    sets
}

/// Tests each call of a limiter, and the same calls of its store without a limiter.
async fn every_call_is_blocked(store: &(impl Store + Clone), policies: &PolicySet) {
    let limiter = Limiter::builder(store.clone())
        .policies(policies.clone())
        .deadline(PATIENCE)
        .build();
    let (key, wait) = (Key::new("acme"), Duration::from_secs(3_600));
    let id = ReservationId::try_new("one").expect("an id");
    let check = Check::new(policies, &key, Cost::ONE);
    let decisions = [
        limiter.check("acme").await,
        limiter.check("acme").cost(Cost::ZERO).await,
        limiter.check("acme").cost(Cost::new(u64::MAX)).await,
        limiter.check("acme").tag("ann").await,
        limiter.check("acme").wait(wait).await,
        limiter.check("acme").cost(Cost::new(9)).wait(wait).await,
        limiter
            .reserve("acme", Cost::new(9))
            .id(id.clone())
            .await
            .map(|held| held.decision().clone()),
        limiter
            .reserve("acme", Cost::new(9))
            .capped()
            .wait(wait)
            .await
            .map(|held| held.decision().clone()),
        store.check(check).await,
        store.look(check).await,
        store.reserve(check, &id, wait).await,
    ];
    for (at, decision) in decisions.into_iter().enumerate() {
        let decision = decision.unwrap_or_else(|error| panic!("{at}: {error}, {policies:?}"));
        assert!(
            decision.is_denied() && decision.is_blocked() && !decision.is_degraded(),
            "{at}: {decision:?}"
        );
        assert_eq!(
            (decision.retry_after(), decision.delay()),
            (None, Duration::ZERO),
            "{at}: {decision:?}"
        );
        for state in decision.states() {
            assert_eq!(
                (state.remaining(), state.retry_after()),
                (0, None),
                "{at}: {decision:?}"
            );
            assert_eq!(
                state.is_exceeded(),
                state.policy().quota().is_blocked(),
                "{at}: {decision:?}"
            );
        }
        assert!(
            decision
                .strictest()
                .expect("a policy")
                .policy()
                .quota()
                .is_blocked(),
            "{at}: {decision:?}"
        );
    }
    assert!(
        limiter
            .peek("acme")
            .await
            .expect("a state")
            .states()
            .all(|state| state.remaining() == 0)
    );
    limiter
        .refund("acme", Cost::ONE)
        .await
        .expect("nothing to refund");
    store.refund(check, None).await.expect("nothing to refund");
    assert_eq!(
        limiter
            .commit("acme", &id, Cost::ONE)
            .await
            .expect("an answer"),
        Settlement::Lapsed
    );
    assert_eq!(
        store.commit(check, &id).await.expect("an answer"),
        Settlement::Lapsed
    );
}

#[tokio::test]
async fn a_policy_of_nothing_is_blocked_in_process() {
    let store = MemoryStore::new();
    for policies in blocked_sets() {
        every_call_is_blocked(&store, &policies).await;
    }
    assert!(store.is_empty(), "a blocked check stores nothing");
}

#[tokio::test]
async fn a_policy_of_nothing_costs_no_call_to_redis_and_is_blocked_in_an_outage_too() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let calls = || server.calls("evalsha") + server.calls("eval");
    let before = calls();
    // The replicas of a limiter count themselves with a script: these limiters have none.
    for policies in blocked_sets() {
        let limiter = Limiter::builder(store.clone())
            .policies(policies)
            .deadline(PATIENCE)
            .on_outage(Outage::Closed)
            .build();
        assert!(decided(&limiter, "acme").await.is_blocked());
    }
    assert_eq!(calls(), before);
    for policies in blocked_sets() {
        every_call_is_blocked(&store, &policies).await;
    }
    server.kill();
    for policies in blocked_sets() {
        for outage in [Outage::default(), Outage::Open, Outage::Closed] {
            let limiter = Limiter::builder(store.clone())
                .policies(policies.clone())
                .on_outage(outage)
                .build();
            let decision = limiter.check("acme").await.expect("a decision");
            assert!(
                decision.is_blocked() && !decision.is_degraded(),
                "{outage:?}: {decision:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_counter_continues_after_a_block_and_may_be_reset_within_one() {
    let denied_keys = DeniedKeys::with_plain_keys(10);
    let limiter = Limiter::builder(MemoryStore::new())
        .policies(DAY)
        .denied_keys(denied_keys.clone())
        .build();
    let blocked = limiter.with_policies(DAY.with_quota(Quota::per_day(0)).expect("a policy"));
    let left = async || {
        limiter
            .peek("acme")
            .await
            .expect("a state")
            .state("day")
            .expect("a policy")
            .remaining()
    };
    assert!(
        decided_at(&limiter, "acme", Cost::new(4))
            .await
            .is_allowed()
    );
    assert!(decided(&blocked, "acme").await.is_blocked());
    assert_eq!((left().await, denied_keys.total()), (6, 1));
    blocked.reset("acme").await.expect("a reset");
    assert_eq!(left().await, 10);
}
