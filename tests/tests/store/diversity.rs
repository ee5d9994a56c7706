//! Checks of different shapes, quotas and costs leave in one write, and each is decided exactly.

use tollgate::{Cost, Limiter, Policy, PolicySet, Quota, RedisStore, store::CheckFuture};
use tollgate_test_support::{connected_store, patient_limiter, remaining};
use tollgate_tests::RedisServer;

use crate::suite::decisions::in_order;

/// The greatest cost beside which checks of one unit are decided.
const GREAT: u64 = 4_294_967_295;

/// One limiter for each of three shapes.
fn limiters(store: &RedisStore) -> [Limiter; 3] {
    let sets: [PolicySet; 3] = [
        Policy::token_bucket("bucket", Quota::per_day(1_000)).into(),
        Policy::sliding_log("log", Quota::per_day(1_000)).into(),
        [
            Policy::fixed_window("day", Quota::per_day(1_000)),
            Policy::token_bucket("week", Quota::per_day(2_000)),
        ]
        .into(),
    ];
    sets.map(|set| patient_limiter(store.clone(), set))
}

/// Sends the checks without waiting in between, and returns the number of those that are allowed.
async fn allowed(checks: impl Iterator<Item = CheckFuture>) -> usize {
    let decisions = in_order(checks.collect()).await;
    assert!(
        decisions.iter().all(|decision| !decision.is_degraded()),
        "{decisions:?}"
    );
    decisions
        .iter()
        .filter(|decision| decision.is_allowed())
        .count()
}

#[tokio::test]
async fn a_write_in_which_the_server_lacks_the_scripts_of_one_shape_of_three_is_decided_exactly() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiters = limiters(&store);
    for missing in 0..limiters.len() {
        assert!(!server.command(&["SCRIPT", "FLUSH"]).is_error());
        // The server knows the scripts of the others, those for a single check and those for many.
        for (_, known) in limiters.iter().enumerate().filter(|(at, _)| *at != missing) {
            assert!(known.check("warm").await.expect("a decision").is_allowed());
            assert_eq!(
                allowed((0..40_u64).map(|key| known.check(key).into_future())).await,
                40
            );
            assert_eq!(
                allowed(
                    (0..40).map(|at| known.check("warm").cost(Cost::new(at % 2)).into_future())
                )
                .await,
                40
            );
        }
        let key = format!("missing {missing}");
        let checks = (0..60).map(|at| {
            limiters[at % 3]
                .check(key.as_str())
                .cost(Cost::new(1 + at as u64 % 2))
                .into_future()
        });
        assert_eq!(allowed(checks).await, 60);
        for (at, limiter) in limiters.iter().enumerate() {
            // Each of the three has 20 checks, 10 of one unit and 10 of two.
            assert_eq!(
                remaining(limiter, key.as_str()).await,
                970,
                "shape {at}, missing {missing}"
            );
        }
    }
}

#[tokio::test]
async fn the_greatest_costs_beside_single_units_are_charged_exactly() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let quota = Quota::per_day(10 * GREAT);
    for policy in [
        Policy::window_from_first_hit("first", quota),
        Policy::fixed_window("day", quota),
    ] {
        let name = policy.name().to_owned();
        let limiter = patient_limiter(store.clone(), policy);
        let costs = [1, GREAT, 0, 1, GREAT, GREAT, 1, 3, GREAT, 1];
        let checks = || {
            costs
                .iter()
                .map(|cost| limiter.check("acme").cost(Cost::new(*cost)).into_future())
        };
        assert_eq!(allowed(checks()).await, 10, "{name}");
        assert_eq!(remaining(&limiter, "acme").await, 6 * GREAT - 7, "{name}");
        assert_eq!(allowed(checks()).await, 10, "{name}");
        // Two great costs no longer fit. The single units still do.
        let last = [GREAT, 1, GREAT, 1, GREAT, 1];
        let checks = last
            .iter()
            .map(|cost| limiter.check("acme").cost(Cost::new(*cost)).into_future());
        assert_eq!(allowed(checks).await, 4, "{name}");
        assert_eq!(remaining(&limiter, "acme").await, GREAT - 17, "{name}");
    }
}
