//! Checks with a cost for each policy, as an application makes them.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{
    Cost, Costs, ErrorKind, Key, Limiter, MemoryStore, Outage, Policy, PolicySet, Quota,
    RedisStore, store::Clock, test_util::FaultyStore,
};
use tollgate_test_support::{decided_at, patient_limiter, remaining_of_each};
use tollgate_tests::RedisServer;

const REQUESTS: Policy = Policy::fixed_window("requests", Quota::per_day(60));
const TOKENS: Policy = Policy::fixed_window("tokens", Quota::per_day(10_000));

/// Returns a limiter over requests and tokens on each store.
async fn limiters(server: &RedisServer) -> [Limiter; 2] {
    let redis = RedisStore::connect(server.url()).await.expect("a store");
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
async fn checks_of_many_callers_and_costs_at_a_time_add_up() {
    const KEYS: u64 = 5;
    let server = RedisServer::start();
    for limiter in limiters(&server).await {
        let mut callers = JoinSet::new();
        for at in 0..500_u64 {
            let limiter = limiter.clone();
            callers.spawn(async move {
                let (key, tokens) = (at % KEYS, at * 37 % 400);
                let decision = decided_at(&limiter, key, costs(tokens)).await;
                (key, tokens, decision.is_allowed())
            });
        }
        let mut spent = [(0, 0); KEYS as usize];
        let mut denied = 0;
        for (key, tokens, is_allowed) in callers.join_all().await {
            match is_allowed {
                true => {
                    spent[key as usize] =
                        (spent[key as usize].0 + 1, spent[key as usize].1 + tokens);
                }
                false => denied += 1,
            }
        }
        assert!(denied > 0);
        for (key, (requests, tokens)) in (0_u64..).zip(spent) {
            assert_eq!(
                remaining_of_each(&limiter, key).await,
                [60 - requests, 10_000 - tokens]
            );
        }
    }
}

#[tokio::test]
async fn a_part_of_each_cost_is_refunded() {
    let server = RedisServer::start();
    for limiter in limiters(&server).await {
        let decision = decided_at(&limiter, "acme", costs(850)).await;
        limiter
            .refund("acme", Costs::new(Cost::ZERO).with("tokens", 600_u64))
            .of(&decision)
            .await
            .expect("a refund");
        assert_eq!(remaining_of_each(&limiter, "acme").await, [59, 9_750]);
        // No more than was spent on each policy.
        limiter
            .refund("acme", Cost::new(200))
            .of(&decision)
            .await
            .expect("a refund");
        assert_eq!(remaining_of_each(&limiter, "acme").await, [60, 9_950]);
        let error = limiter
            .refund("acme", [("tokns", 1)])
            .of(&decision)
            .await
            .expect_err("no such policy");
        assert_eq!(error.kind(), ErrorKind::Config);
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
    let redis = RedisStore::connect(server.url()).await.expect("a store");
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

#[tokio::test]
async fn an_outage_keeps_the_costs() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let limiter = Limiter::builder(store)
        .policies([REQUESTS, TOKENS])
        .on_outage(Outage::local(10))
        .build();
    drop(server);
    let decision = decided_at(&limiter, "acme", costs(850)).await;
    assert!(decision.is_allowed() && decision.is_degraded());
    let left: Vec<_> = decision.states().map(|state| state.remaining()).collect();
    assert_eq!(left, [5, 150], "a tenth of each quota");
}

#[tokio::test]
async fn an_outage_spends_the_share_of_a_cost_that_is_above_it_and_no_more() {
    let store = FaultyStore::default();
    store.fail();
    let day = Policy::token_bucket("day", Quota::per_day(12));
    let wide = Policy::fixed_window("wide", Quota::per_day(100));
    let limiter = |policies: PolicySet| {
        Limiter::builder(store.clone())
            .policies(policies)
            .on_outage(Outage::local(4))
            .build()
    };
    for policies in [
        day.clone().into(),
        Policy::sliding_log("log", Quota::per_day(12)).into(),
        [day.clone(), wide.clone()].into(),
    ] {
        let limiter = limiter(policies);
        let spend = async |key: &str, cost: u64| {
            let decision = decided_at(&limiter, key, Cost::new(cost)).await;
            let left = decision.states().next().expect("a state").remaining();
            (decision.is_allowed(), left)
        };
        assert_eq!(spend("fresh", 12).await, (true, 0));
        assert_eq!(spend("fresh", 12).await, (false, 0));
        assert_eq!(spend("fresh", 1).await, (false, 0));
        assert_eq!(spend("begun", 1).await, (true, 2));
        assert_eq!(spend("begun", 12).await, (false, 2), "a part is not enough");
    }
    let decision = decided_at(&limiter([day, wide].into()), "acme", Cost::new(12)).await;
    let left: Vec<_> = decision.states().map(|state| state.remaining()).collect();
    assert_eq!(left, [0, 13], "3 of 3 and 12 of 25");
}
