//! Reservations as an application makes them, in process, on a server, in a cluster, and through
//! faults.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{
    Cost, Costs, ErrorKind, Key, Limiter, MemoryStore, Outage, Policy, Quota, RedisStore,
    reservation::{ReservationId, Settlement},
    store::Clock,
};
use tollgate_test_support::{
    Deployment, Kind, PATIENCE, START_US, decided_at, lost_settlements::LostSettlements,
    opened_store, patient_limiter, remaining_of_each,
};
use tollgate_tests::{Mode, Proxy, RedisServer, wait};

use crate::suite::run;

const REQUESTS: Policy = Policy::fixed_window("requests", Quota::per_day(60));
const TOKENS: Policy = Policy::fixed_window("tokens", Quota::per_day(10_000));

fn costs(tokens: u64) -> Costs {
    [("requests", 1), ("tokens", tokens)].into()
}

fn id(text: &str) -> ReservationId {
    ReservationId::try_new(text).expect("an id")
}

/// Returns a limiter over requests and tokens on each store.
async fn limiters(deployment: &Deployment) -> [Limiter; 2] {
    let redis = deployment.builder("held").connect().await.expect("a store");
    [
        patient_limiter(redis, [REQUESTS, TOKENS]),
        patient_limiter(MemoryStore::new(), [REQUESTS, TOKENS]),
    ]
}

async fn every_way_to_settle(deployment: &Deployment) {
    for limiter in limiters(deployment).await {
        let reservation = limiter
            .reserve("acme", costs(1_000))
            .await
            .expect("a decision");
        assert!(reservation.is_allowed());
        assert_eq!(remaining_of_each(&limiter, "acme").await, [59, 9_000]);
        // Less than the estimate.
        assert_eq!(
            reservation.commit(costs(620)).await.expect("settled"),
            Settlement::Settled
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [59, 9_380]);
        for late in [0, 620, 1_000, 9_000] {
            assert_eq!(
                reservation.commit(costs(late)).await.expect("a no-op"),
                Settlement::AlreadySettled
            );
        }
        assert_eq!(remaining_of_each(&limiter, "acme").await, [59, 9_380]);
        // More than the estimate, and more than is left: a debt.
        let reservation = limiter
            .reserve("acme", costs(9_000))
            .await
            .expect("a decision");
        assert_eq!(
            reservation.commit(costs(12_000)).await.expect("settled"),
            Settlement::Settled
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [58, 0]);
        let denied = limiter.reserve("acme", costs(1)).await.expect("a decision");
        assert!(denied.is_denied());
        assert_eq!(
            denied.commit(costs(500)).await.expect("a no-op"),
            Settlement::Lapsed
        );
        assert!(denied.into_result().is_err());
        // An estimate of zero is allowed in debt.
        let nothing = [("requests", 0), ("tokens", 0)];
        assert!(
            limiter
                .reserve("acme", nothing)
                .await
                .expect("a decision")
                .is_allowed()
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [58, 0]);

        // Cancelled, dropped, and settled by another limiter by its id.
        assert_eq!(
            limiter
                .reserve("bob", costs(7))
                .await
                .expect("a decision")
                .cancel()
                .await
                .expect("settled"),
            Settlement::Settled
        );
        assert_eq!(remaining_of_each(&limiter, "bob").await, [60, 10_000]);
        drop(
            limiter
                .reserve("bob", costs(100))
                .id(id("dropped"))
                .await
                .expect("a decision"),
        );
        assert_eq!(remaining_of_each(&limiter, "bob").await, [59, 9_900]);
        // An id belongs to all policies of its limiter.
        let part = limiter.with_policies([TOKENS]);
        let lapsed = part
            .commit("bob", &id("dropped"), Cost::new(40))
            .await
            .expect("a no-op");
        assert_eq!(lapsed, Settlement::Lapsed);
        let other = limiter.with_policies([REQUESTS, TOKENS]);
        let settled = other
            .commit("bob", &id("dropped"), costs(40))
            .await
            .expect("settled");
        assert_eq!(settled, Settlement::Settled);
        assert_eq!(remaining_of_each(&limiter, "bob").await, [59, 9_960]);
        // An id of another key, and an id that was never reserved.
        for (key, id) in [("acme", id("dropped")), ("bob", id("unknown"))] {
            assert_eq!(
                limiter.commit(key, &id, costs(0)).await.expect("a no-op"),
                Settlement::Lapsed
            );
        }
    }
}

#[tokio::test]
async fn a_reservation_is_settled_once_at_the_real_cost() {
    run(Kind::Server, "", every_way_to_settle).await;
}

#[tokio::test]
async fn a_reservation_is_settled_once_at_the_real_cost_in_a_cluster() {
    run(Kind::Cluster, "", every_way_to_settle).await;
}

#[tokio::test]
async fn the_same_id_is_charged_once_and_answers_the_same() {
    let deployment = Deployment::start(
        Kind::Server,
        "the_same_id_is_charged_once_and_answers_the_same",
    );
    for limiter in limiters(&deployment.expect("redis is always there")).await {
        let reserve = async || {
            limiter
                .reserve("acme", costs(1_000))
                .id(id("order-1"))
                .await
                .expect("a decision")
        };
        let first = reserve().await;
        let _ = decided_at(&limiter, "acme", costs(5)).await;
        for _ in 0..3 {
            let again = reserve().await;
            assert!(again.is_allowed());
            let left = |decision: &tollgate::Decision| {
                decision
                    .states()
                    .map(|at| at.remaining())
                    .collect::<Vec<_>>()
            };
            assert_eq!(left(again.decision()), left(first.decision()));
        }
        assert_eq!(remaining_of_each(&limiter, "acme").await, [58, 8_995]);
        // A late repetition of a settled reservation is not charged either.
        assert_eq!(
            first.commit(costs(0)).await.expect("settled"),
            Settlement::Settled
        );
        let late = reserve().await;
        assert!(late.is_allowed());
        assert_eq!(
            late.commit(costs(700)).await.expect("a no-op"),
            Settlement::AlreadySettled
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [58, 9_995]);
        // Other policies under the same id are another reservation.
        let other = limiter.with_policies([Policy::fixed_window("other", Quota::per_day(5))]);
        let reservation = other
            .reserve("acme", Cost::new(5))
            .id(id("order-1"))
            .await
            .expect("a decision");
        assert_eq!(remaining_of_each(&other, "acme").await, [0]);
        assert_eq!(
            reservation.commit(Cost::new(4)).await.expect("settled"),
            Settlement::Settled
        );
        assert_eq!(remaining_of_each(&other, "acme").await, [1]);
    }
}

#[tokio::test]
async fn a_reservation_that_would_wait_too_long_is_denied_by_the_decision_itself() {
    let deployment = Deployment::start(
        Kind::Server,
        "a_reservation_that_would_wait_too_long_is_denied",
    );
    let deployment = deployment.expect("redis is always there");
    let clock = Clock::manual(START_US);
    let redis = deployment
        .builder("held")
        .clock(clock.clone())
        .connect()
        .await
        .expect("a store");
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let calls = Policy::leaky_bucket("calls", Quota::per_second(10).with_burst(100));
    let millis = Duration::from_millis;
    let over_redis = patient_limiter(redis, [calls.clone(), TOKENS]);
    for (trips, limiter) in [
        (4, over_redis),
        (0, patient_limiter(memory, [calls, TOKENS])),
    ] {
        let reserve = async |max_wait| {
            let reserve = limiter
                .reserve("acme", [("calls", 1), ("tokens", 70)])
                .wait(max_wait);
            reserve.await.expect("a decision").decision().clone()
        };
        for delay in [0, 100] {
            assert_eq!(reserve(millis(150)).await.delay(), millis(delay));
        }
        let before = deployment.calls(&["eval", "evalsha"]);
        for wait in [0, 1, 150, 199] {
            let denied = reserve(millis(wait)).await;
            assert_eq!(denied.retry_after(), Some(millis(200 - wait)), "{denied:?}");
        }
        let sent = deployment.calls(&["eval", "evalsha"]) - before;
        assert_eq!(sent, trips, "one call for each, and no place is given back");
        // Nothing was charged by any policy, and the place in the queue is the next one's.
        assert_eq!(remaining_of_each(&limiter, "acme").await, [98, 9_860]);
        assert_eq!(reserve(millis(200)).await.delay(), millis(200));
        clock.advance(millis(150));
        assert_eq!(reserve(millis(150)).await.delay(), millis(150));
        assert_eq!(remaining_of_each(&limiter, "acme").await[1], 9_720);
    }
}

#[tokio::test]
async fn what_cannot_be_reserved_is_an_error_of_its_own_and_charges_nothing() {
    let deployment = Deployment::start(Kind::Server, "what_cannot_be_reserved_is_an_error");
    for limiter in limiters(&deployment.expect("redis is always there")).await {
        let error = limiter
            .reserve("acme", costs(10_001))
            .await
            .expect_err("too much");
        assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
        for life in [
            Duration::ZERO,
            Duration::from_micros(999),
            Duration::from_secs(86_400 * 365),
        ] {
            let error = limiter
                .reserve("acme", costs(1))
                .time_to_live(life)
                .await
                .expect_err("a life");
            assert_eq!(error.kind(), ErrorKind::Config);
        }
        let error = limiter
            .reserve("acme", [("tokns", 1)])
            .await
            .expect_err("an unknown policy");
        assert_eq!(error.kind(), ErrorKind::Config);
        let reservation = limiter
            .reserve("acme", costs(20_000))
            .capped()
            .await
            .expect("a decision");
        let charged: Vec<u64> = reservation
            .decision()
            .states()
            .map(|state| state.cost().units())
            .collect();
        assert_eq!(charged, [1, 10_000]);
        let error = reservation
            .commit([("tokns", 1)])
            .await
            .expect_err("an unknown policy");
        assert_eq!(error.kind(), ErrorKind::Config);
        let error = limiter
            .commit("acme", reservation.id(), [("tokns", 1)])
            .await
            .expect_err("an unknown policy");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(
            reservation.commit(costs(u64::MAX)).await.expect("settled"),
            Settlement::Settled
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [59, 0]);
    }
}

#[tokio::test]
async fn ids_and_keys_of_any_bytes_are_kept_apart() {
    let deployment = Deployment::start(Kind::Server, "ids_and_keys_of_any_bytes_are_kept_apart");
    for limiter in limiters(&deployment.expect("redis is always there")).await {
        let hostile = [
            "a",
            "a:r1",
            "{a}",
            "a b",
            "a\0",
            "a>b",
            ":",
            "a:tokens:f1",
            "tokens",
            "f1",
        ];
        let long = "x".repeat(1_000_000);
        let ids: Vec<_> = hostile
            .iter()
            .copied()
            .chain([&long[..64], &long[..65], &long])
            .map(id)
            .collect();
        let is_word = |id: &ReservationId| {
            let text = id.as_str();
            (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        assert!(ids.iter().all(is_word), "{ids:?}");
        let keys = [
            Key::new("a"),
            Key::new("a").child("b"),
            Key::from(("a", "b")),
            Key::new("{a}"),
        ];
        for key in &keys {
            for id in &ids {
                let reservation = limiter
                    .reserve(key, costs(2))
                    .id(id.clone())
                    .await
                    .expect("a decision");
                assert!(reservation.is_allowed(), "{id}");
            }
        }
        for key in &keys {
            for id in &ids {
                assert_eq!(
                    limiter.commit(key, id, costs(1)).await.expect("settled"),
                    Settlement::Settled,
                    "{id}"
                );
            }
            let count = ids.len() as u64;
            assert_eq!(
                remaining_of_each(&limiter, key).await,
                [60 - count, 10_000 - count]
            );
        }
    }
}

#[tokio::test]
async fn many_commits_at_a_time_count_once() {
    let deployment = Deployment::start(Kind::Server, "many_commits_at_a_time_count_once");
    for limiter in limiters(&deployment.expect("redis is always there")).await {
        let mut callers = JoinSet::new();
        for at in 0..200_u64 {
            let limiter = limiter.clone();
            callers.spawn(async move {
                let name = id(&(at % 20).to_string());
                let reservation = limiter
                    .reserve("acme", costs(100))
                    .id(name)
                    .await
                    .expect("a decision");
                reservation.commit(costs(30)).await.expect("a settlement")
            });
        }
        let settled = callers.join_all().await;
        assert_eq!(
            settled
                .iter()
                .filter(|&&settlement| settlement == Settlement::Settled)
                .count(),
            20
        );
        assert_eq!(
            remaining_of_each(&limiter, "acme").await,
            [40, 10_000 - 20 * 30]
        );
    }
}

#[tokio::test]
async fn a_reservation_that_lapsed_stays_charged() {
    let server = RedisServer::start();
    let clock = Clock::manual(4_000_000_000_000_000);
    let redis = RedisStore::builder(server.url())
        .clock(clock.clone())
        .connect()
        .await
        .expect("a store");
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    for limiter in [
        patient_limiter(redis, TOKENS),
        patient_limiter(memory, TOKENS),
    ] {
        let reserve = limiter
            .reserve("acme", Cost::new(100))
            .time_to_live(Duration::from_secs(5));
        let reservation = reserve.id(id("slow")).await.expect("a decision");
        clock.advance(Duration::from_secs(5));
        assert_eq!(
            reservation.commit(Cost::ZERO).await.expect("a no-op"),
            Settlement::Lapsed
        );
        assert_eq!(remaining_of_each(&limiter, "acme").await, [9_900]);
        // The id is free again.
        let again = limiter
            .reserve("acme", Cost::new(100))
            .id(id("slow"))
            .await
            .expect("a decision");
        assert_eq!(remaining_of_each(&limiter, "acme").await, [9_800]);
        assert_eq!(again.cancel().await.expect("settled"), Settlement::Settled);
        assert_eq!(remaining_of_each(&limiter, "acme").await, [9_900]);
        // A window that opened meanwhile gets nothing back.
        let late = limiter
            .reserve("acme", Cost::new(50))
            .time_to_live(Duration::from_secs(2 * 86_400));
        let late = late.await.expect("a decision");
        clock.advance(Duration::from_secs(86_400));
        assert!(
            decided_at(&limiter, "acme", Cost::new(10))
                .await
                .is_allowed()
        );
        assert_eq!(late.cancel().await.expect("settled"), Settlement::Settled);
        assert_eq!(remaining_of_each(&limiter, "acme").await, [9_990]);
    }
}

#[tokio::test]
async fn lost_replies_charge_once_and_settle_once() {
    let mut losing = LostSettlements::start().await;
    for _ in 0..5 {
        assert_eq!(
            losing.round().await,
            [Settlement::Settled, Settlement::AlreadySettled]
        );
        let [spent, expected] = losing.spent().await;
        assert_eq!(spent, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_does_not_reach_its_server_is_charged_once_when_it_is_back() {
    let server = RedisServer::start();
    let (proxy, clock) = (Proxy::start(server.addr()), Clock::manual(START_US));
    let builder = |url| RedisStore::builder(url).clock(clock.clone());
    let behind = builder(proxy.url()).connect().await.expect("a store");
    let direct = builder(server.url()).connect().await.expect("a store");
    let behind = |deadline| {
        let builder = Limiter::builder(behind.clone()).policies([REQUESTS, TOKENS]);
        let builder = builder.deadline(deadline).on_outage(Outage::Closed);
        builder.build()
    };
    let (patient, hasty) = (behind(5 * PATIENCE), behind(Duration::from_millis(300)));
    let direct = patient_limiter(direct, [REQUESTS, TOKENS]);
    // One does not arrive at the server, and the answer to the other does not arrive here.
    for (at, mode) in (1..).zip([Mode::Refuse, Mode::Mute]) {
        let id = id(&at.to_string());
        let job = patient.reserve("acme", costs(1_000)).id(id.clone()).await;
        assert!(job.expect("a decision").is_allowed());
        let charged = [60 - at, 10_000 - (at - 1) * 300 - 1_000];
        assert_eq!(remaining_of_each(&direct, "acme").await, charged);
        proxy.set(mode);
        let lost = hasty.commit("acme", &id, costs(300)).await;
        let error = lost.expect_err("no answer");
        assert!(!error.kind().is_config(), "{error}");
        proxy.set(Mode::Pass);
        let settled = [60 - at, 10_000 - at * 300];
        wait::until_async("the commit", PATIENCE, async || {
            remaining_of_each(&direct, "acme").await == settled
        })
        .await;
        let again = direct.commit("acme", &id, costs(0)).await;
        assert_eq!(again.expect("no change"), Settlement::AlreadySettled);
        assert_eq!(remaining_of_each(&direct, "acme").await, settled);
    }
}

#[tokio::test]
async fn in_an_outage_a_reservation_is_held_as_the_outage_says() {
    let server = RedisServer::start();
    let limiter = |outage: Outage| {
        let store = opened_store(server.url());
        Limiter::builder(store)
            .policies([REQUESTS, TOKENS])
            .deadline(PATIENCE)
            .on_outage(outage)
            .build()
    };
    let [local, open, closed] = [Outage::default(), Outage::Open, Outage::Closed].map(limiter);
    let before = closed
        .reserve("acme", costs(100))
        .await
        .expect("a decision");
    server.kill();
    let held = local.reserve("acme", costs(100)).await.expect("a decision");
    assert!(held.is_allowed() && held.decision().is_degraded());
    assert_eq!(remaining_of_each(&local, "acme").await, [59, 9_900]);
    assert_eq!(
        held.commit(costs(10)).await.expect("settled"),
        Settlement::Settled
    );
    assert_eq!(
        held.commit(costs(10)).await.expect("a no-op"),
        Settlement::AlreadySettled
    );
    assert_eq!(remaining_of_each(&local, "acme").await, [59, 9_990]);
    let nowhere = open.reserve("acme", costs(100)).await.expect("a decision");
    assert!(nowhere.is_allowed() && nowhere.decision().is_degraded());
    assert_eq!(
        nowhere.commit(costs(10)).await.expect("a no-op"),
        Settlement::Lapsed
    );
    assert!(closed.reserve("acme", costs(100)).await.is_err());
    // A commit fails in the outage, and is repeated.
    assert!(before.commit(costs(10)).await.is_err());
}
