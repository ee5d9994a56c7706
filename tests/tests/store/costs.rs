//! Checks with a cost for each policy, as an application makes them.

use std::time::Duration;

use tollgate::{Cost, Costs, ErrorKind, Key, Limiter, MemoryStore, Policy, Quota, store::Clock};
use tollgate_test_support::{connected_store, decided_at, patient_limiter, remaining_of_each};
use tollgate_tests::RedisServer;

const REQUESTS: Policy = Policy::fixed_window("requests", Quota::per_day(60));
const TOKENS: Policy = Policy::fixed_window("tokens", Quota::per_day(10_000));

/// Returns a limiter over requests and tokens on each store.
async fn limiters(server: &RedisServer) -> [Limiter; 2] {
    let redis = connected_store(server.url()).await;
    [
        patient_limiter(redis, [REQUESTS, TOKENS]),
        patient_limiter(MemoryStore::new(), [REQUESTS, TOKENS]),
    ]
}

fn costs(tokens: u64) -> Costs {
    [("requests", 1), ("tokens", tokens)].into()
}

#[tokio::test]
async fn a_request_and_its_tokens_are_charged_together_or_not_at_all() {
    let server = RedisServer::start();
    for limiter in limiters(&server).await {
        let decision = decided_at(&limiter, "acme", costs(850)).await;
        assert!(decision.is_allowed());
        assert_eq!(
            decision
                .states()
                .map(|state| state.cost().units())
                .collect::<Vec<_>>(),
            [1, 850]
        );
        assert_eq!(decision.cost(), Cost::new(850), "the greatest");
        assert_eq!(remaining_of_each(&limiter, "acme").await, [59, 9_150]);

        let decision = decided_at(&limiter, "acme", costs(9_151)).await;
        assert!(decision.is_denied());
        assert_eq!(
            decision
                .states()
                .map(|state| state.is_exceeded())
                .collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(
            decision
                .strictest()
                .map(|state| state.policy().name().to_owned())
                .as_deref(),
            Some("tokens")
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [59, 9_150]);
        // The process remembers the denial for these costs alone.
        assert!(decided_at(&limiter, "acme", costs(9_151)).await.is_denied());
        assert!(
            decided_at(&limiter, "acme", costs(9_150))
                .await
                .is_allowed()
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [58, 0]);
        // A policy at no cost does not deny.
        assert!(decided_at(&limiter, "acme", costs(0)).await.is_allowed());
        assert!(
            decided_at(&limiter, "acme", Costs::new(Cost::ONE))
                .await
                .is_denied()
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [57, 0]);
    }
}

#[tokio::test]
async fn costs_that_fit_no_policy_of_the_limiter_are_errors_and_spend_nothing() {
    let server = RedisServer::start();
    for limiter in limiters(&server).await {
        let error = async |costs: Costs| {
            limiter
                .check("acme")
                .cost(costs)
                .await
                .expect_err("wrong costs")
        };
        let unknown = error([("requests", 1), ("tokns", 5)].into()).await;
        assert_eq!(unknown.kind(), ErrorKind::Config);
        assert_eq!(
            unknown.to_string(),
            r#"costs name policy "tokns", which is not in the set requests, tokens"#
        );
        let missing = error([("requests", 1)].into()).await;
        assert_eq!(missing.to_string(), r#"costs do not name policy "tokens""#);
        let too_many = error(costs(10_001)).await;
        assert_eq!(too_many.kind(), ErrorKind::CostExceedsBurst);
        assert_eq!(
            too_many.to_string(),
            "cost 10001 exceeds the burst 10000 of policy tokens"
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [60, 10_000]);
        // Each cost is compared with its own burst.
        assert!(
            decided_at(&limiter, "acme", costs(10_000))
                .await
                .is_allowed()
        );
    }
    // A peek, a check, and a count of the replicas.
    let sent = server.calls("evalsha") + server.calls("eval");
    assert!(
        (2..5).contains(&sent),
        "wrong costs are not sent, in {sent} calls"
    );
}

#[tokio::test]
async fn levels_of_one_key_have_costs_of_their_own() {
    let server = RedisServer::start();
    let redis = connected_store(server.url()).await;
    let policies = || {
        [
            Policy::fixed_window("all", Quota::per_day(10_000)).at_level(1),
            Policy::fixed_window("tenant", Quota::per_day(100)).at_level(2),
            Policy::fixed_window("user", Quota::per_day(5)),
        ]
    };
    for limiter in [
        patient_limiter(redis, policies()),
        patient_limiter(MemoryStore::new(), policies()),
    ] {
        let user = |name: &'static str| Key::new("all").child("acme").child(name);
        let costs = Costs::new(Cost::ONE).with("all", 50_u64);
        for _ in 0..5 {
            assert!(
                decided_at(&limiter, user("ann"), costs.clone())
                    .await
                    .is_allowed()
            );
        }
        // What the user's limit denies spends nothing of the outer ones.
        assert!(
            decided_at(&limiter, user("ann"), costs.clone())
                .await
                .is_denied()
        );
        assert!(
            decided_at(&limiter, user("bob"), costs.clone())
                .await
                .is_allowed()
        );
        assert_eq!(
            remaining_of_each(&limiter, user("bob")).await,
            [9_700, 94, 4]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_until_each_cost_is_available() {
    let policies = [
        Policy::token_bucket("requests", Quota::per_second(1)),
        Policy::token_bucket("tokens", Quota::per_second(100)),
    ];
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let limiter = Limiter::new(store, policies);
    let wait = async |tokens| {
        let start = tokio::time::Instant::now();
        let decision = limiter
            .check("acme")
            .cost(costs(tokens))
            .wait(Duration::from_secs(5))
            .await
            .expect("a decision");
        assert!(decision.is_allowed());
        start.elapsed().as_millis()
    };
    assert_eq!(wait(100).await, 0);
    assert_eq!(
        wait(50).await,
        1_000,
        "the request waits longer than the tokens"
    );
    assert_eq!(wait(100).await, 1_000);
}
