//! Leases on a real server: most checks make no trip, no bound is exceeded, and nothing is lost.

use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tollgate::{Cost, Lease, Limiter, MemoryStore, Policy, PolicySet, Quota, RedisStore, Store};
use tollgate_test_support::{
    Deployment, Kind, PATIENCE, connected_store, decided_at, patient_limiter, remaining,
};
use tollgate_tests::{RedisServer, machine, wait};

use crate::suite::run;

/// The commands by which scripts run.
const SCRIPTS: &[&str] = &["eval", "evalsha"];

fn hourly(amount: u64) -> Policy {
    let lease = Lease::new().generation(Duration::from_secs(60));
    Policy::token_bucket("leased", Quota::per_hour(amount)).leased(lease)
}

async fn store(deployment: &Deployment) -> RedisStore {
    deployment
        .builder("leases")
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store")
}

/// Returns the most units of 10 000 in an hour that have accrued since then.
fn accrued(since: Instant) -> u64 {
    since.elapsed().as_millis() as u64 / 360 + 1
}

async fn spend(limiter: &Limiter, checks: u32) -> (u64, u64) {
    let (mut admitted, mut leased) = (0, 0);
    for _ in 0..checks {
        let decision = limiter.check("hot").await.expect("a decision");
        admitted += u64::from(decision.is_allowed());
        leased += u64::from(decision.is_leased());
        assert!(decision.is_allowed() || !decision.is_leased());
    }
    (admitted, leased)
}

async fn most_checks_make_no_trip(deployment: &Deployment) {
    let limiters = [store(deployment).await, store(deployment).await]
        .map(|store| patient_limiter(store, hourly(20_000)));
    let began = Instant::now();
    let before = deployment.calls(SCRIPTS);
    let (mut admitted, mut leased) = (0, 0);
    for _ in 0..90 {
        for limiter in &limiters {
            let (more, without) = spend(limiter, 100).await;
            (admitted, leased) = (admitted + more, leased + without);
        }
    }
    let trips = deployment.calls(SCRIPTS) - before;
    assert_eq!(
        admitted, 18_000,
        "nothing is denied that fits beside what is out"
    );
    assert!(
        trips < 1_000 && leased > 17_000,
        "{trips} trips, {leased} leased"
    );
    for limiter in &limiters {
        let (more, _) = spend(limiter, 2_000).await;
        admitted += more;
    }
    // An hour's quota, and what accrues while the test runs.
    assert!(
        (20_000..=20_000 + 2 * accrued(began)).contains(&admitted),
        "{admitted}"
    );
    deployment.assert_every_key_expires();
}

#[tokio::test]
async fn most_checks_of_a_hot_key_make_no_trip_and_the_quota_is_spent_exactly() {
    run(Kind::Server, "", most_checks_make_no_trip).await;
}

#[tokio::test]
async fn a_cluster_leases() {
    run(Kind::Cluster, "", most_checks_make_no_trip).await;
}

#[tokio::test]
async fn valkey_leases() {
    run(
        Kind::Valkey,
        "leases::valkey_leases",
        most_checks_make_no_trip,
    )
    .await;
}

#[tokio::test]
async fn a_leased_decision_tells_what_this_process_holds() {
    let deployment = Deployment::start(
        Kind::Server,
        "a_leased_decision_tells_what_this_process_holds",
    )
    .expect("a server");
    let limiter = patient_limiter(store(&deployment).await, hourly(10_000));
    let mut last = None;
    for _ in 0..2_000 {
        let decision = limiter.check("hot").await.expect("a decision");
        let state = decision.state("leased").expect("a state");
        let remaining = state.remaining();
        if decision.is_leased() {
            if let Some((true, before)) = last {
                assert_eq!(remaining + 1, before, "one unit less is held");
            }
            assert!(remaining < 10_000 / 8 + 1, "{remaining}");
            assert!(state.reset_after() > Duration::ZERO);
        }
        last = Some((decision.is_leased(), remaining));
    }
    let decision = limiter.check("hot").await.expect("a decision");
    if decision.is_leased() {
        let before = decision.state("leased").expect("a state").remaining();
        limiter
            .refund("hot", Cost::ONE)
            .of(&decision)
            .await
            .expect("a refund");
        let after = limiter.check("hot").await.expect("a decision");
        assert_eq!(
            after.state("leased").expect("a state").remaining(),
            before,
            "the unit is held again"
        );
    }
    let peek = limiter.peek("hot").await.expect("a decision");
    assert!(peek.state("leased").expect("a state").remaining() > 7_000 - 10_000 / 8);
}

#[tokio::test]
async fn refunds_of_units_that_were_reported_later_come_back() {
    let test = "refunds_of_units_that_were_reported_later_come_back";
    let deployment = Deployment::start(Kind::Server, test).expect("a server");
    let policy = Policy::sliding_log("log", Quota::per_hour(2_000)).leased(Lease::new());
    let limiter = patient_limiter(store(&deployment).await, policy);
    // The times of the reports are forgotten while the machine stands still, and then another key
    // shows it.
    let mut lost = Vec::new();
    for key in ["first", "second", "third"] {
        let mut leased = Vec::new();
        for _ in 0..500 {
            let decision = limiter.check(key).await.expect("a decision");
            leased.extend(decision.is_leased().then_some(decision));
        }
        assert!(leased.len() > 250, "{} leased", leased.len());
        // The peek makes a trip, which reports what was spent since the last one.
        let before = remaining(&limiter, key).await;
        for decision in &leased {
            limiter
                .refund(key, Cost::ONE)
                .of(decision)
                .await
                .expect("a refund");
        }
        match before + leased.len() as u64 - remaining(&limiter, key).await {
            0 => return,
            units => lost.push(units),
        }
    }
    panic!("{lost:?} units did not come back");
}

#[tokio::test]
async fn a_debt_outlasts_the_units_that_another_process_holds() {
    let test = "a_debt_outlasts_the_units_that_another_process_holds";
    let deployment = Deployment::start(Kind::Server, test).expect("a server");
    let (holding, other) = (
        store(&deployment).await,
        patient_limiter(store(&deployment).await, hourly(10_000)),
    );
    let (admitted, leased) = spend(&patient_limiter(holding.clone(), hourly(10_000)), 500).await;
    assert!(
        admitted == 500 && leased > 0,
        "{admitted} admitted, {leased} leased"
    );
    let reservation = other
        .reserve("hot", Cost::new(20))
        .await
        .expect("an answer")
        .into_result()
        .expect("a reservation");
    reservation
        .commit(Cost::new(50_000))
        .await
        .expect("a commit");
    let wait = async || {
        let decision = other.check("hot").await.expect("a decision");
        decision.retry_after().expect("a denial")
    };
    // 40 000 units beyond the burst take four hours. What is out and is not needed comes back.
    let hours = Duration::from_secs(4 * 3_600);
    assert!(wait().await > hours);
    holding
        .release_leases()
        .await
        .expect("the units are returned");
    assert!(
        wait().await > hours,
        "the report of what was spent forgives the debt"
    );
    other.reset("hot").await.expect("a reset");
    assert!(other.check("hot").await.expect("a decision").is_allowed());
}

#[tokio::test]
async fn a_reset_clears_the_units_that_are_out() {
    let deployment =
        Deployment::start(Kind::Server, "a_reset_clears_the_units_that_are_out").expect("a server");
    let limiter = patient_limiter(store(&deployment).await, hourly(10_000));
    spend(&limiter, 500).await;
    limiter.reset("hot").await.expect("a reset");
    let peek = limiter.peek("hot").await.expect("a decision");
    assert_eq!(peek.state("leased").expect("a state").remaining(), 10_000);
    assert!(!limiter.check("hot").await.expect("a decision").is_leased());
    deployment.assert_every_key_expires();
}

#[tokio::test]
async fn a_set_is_leased_and_different_costs_make_a_trip() {
    let deployment = Deployment::start(
        Kind::Server,
        "a_set_is_leased_and_different_costs_make_a_trip",
    )
    .expect("a server");
    let lease = Lease::new();
    let set = PolicySet::from([
        Policy::token_bucket("requests", Quota::per_hour(9_000)).leased(lease),
        Policy::sliding_log("log", Quota::per_hour(1_000)).leased(lease),
        Policy::fixed_window("daily", Quota::per_day(100_000)).leased(lease),
    ]);
    let limiter = patient_limiter(store(&deployment).await, set);
    let (admitted, leased) = spend(&limiter, 900).await;
    assert_eq!(admitted, 900);
    assert!(leased > 500, "{leased}");
    let costs = [("requests", 1), ("log", 1), ("daily", 7)];
    let decision = limiter.check("hot").cost(costs).await.expect("a decision");
    assert!(decision.is_allowed() && !decision.is_leased());
    let (admitted, _) = spend(&limiter, 300).await;
    assert_eq!(
        admitted, 99,
        "the log admits 1000 in an hour, and one left with the costs"
    );
    assert!(decided_at(&limiter, "hot", Cost::ZERO).await.is_allowed());
}

#[tokio::test]
async fn released_units_can_be_spent_by_others_at_once() {
    let deployment = Deployment::start(
        Kind::Server,
        "released_units_can_be_spent_by_others_at_once",
    )
    .expect("a server");
    let (ending, other) = (
        store(&deployment).await,
        patient_limiter(store(&deployment).await, hourly(10_000)),
    );
    let limiter = patient_limiter(ending.clone(), hourly(10_000));
    let began = Instant::now();
    let (admitted, leased) = spend(&limiter, 500).await;
    assert!(
        admitted == 500 && leased > 0,
        "{admitted} admitted, {leased} leased"
    );
    assert!(
        remaining(&other, "hot").await < 9_500,
        "the units of the other process count as used"
    );
    ending
        .release_leases()
        .await
        .expect("the units are returned");
    let left = remaining(&other, "hot").await;
    assert!((9_500..=9_500 + accrued(began)).contains(&left), "{left}");
    assert!(
        !limiter.check("hot").await.expect("a decision").is_leased(),
        "nothing is held"
    );
    ending.release_leases().await.expect("nothing to return");
}

#[test]
fn units_of_a_key_that_is_not_asked_for_any_more_are_returned_without_a_further_check() {
    // Units lapse while the machine stands still for half of a generation.
    machine::undisturbed(GENERATION / 8, || {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(units_are_returned());
    });
}

const GENERATION: Duration = Duration::from_secs(4);

async fn units_are_returned() {
    let deployment = Deployment::start(Kind::Server, "units_are_returned").expect("a server");
    let lease = Lease::new().generation(GENERATION);
    // 2.8 units accrue in a second.
    let policy = Policy::token_bucket("leased", Quota::per_hour(10_000)).leased(lease);
    let limiter = patient_limiter(store(&deployment).await, policy.clone());
    let other = patient_limiter(store(&deployment).await, policy);
    let mut admitted = 0;
    wait::until_async("units that are out", PATIENCE, async || {
        let (more, leased) = spend(&limiter, 500).await;
        admitted += more;
        leased > 400 && remaining(&other, "hot").await < 10_000 - admitted - 100
    })
    .await;
    wait::until_async("the units to be returned", 5 * GENERATION, async || {
        remaining(&other, "hot").await >= 10_000 - admitted
    })
    .await;
}

#[tokio::test]
async fn units_that_are_held_are_spent_in_an_outage_before_its_answer() {
    let server = RedisServer::start();
    let store = connected_store(server.url()).await;
    let limiter = patient_limiter(store, hourly(100_000));
    wait::until_async("a decision that is leased", PATIENCE, async || {
        limiter.check("hot").await.expect("a decision").is_leased()
    })
    .await;
    server.kill();
    let mut leased = 0;
    let answer = loop {
        match limiter.check("hot").await {
            Ok(decision) if decision.is_leased() => leased += 1,
            answer => break answer,
        }
    };
    assert!(leased > 0 && leased < 100_000 / 8, "{leased}");
    assert!(answer.is_err_and(|error| error.kind().is_unavailable()));
}

#[tokio::test]
async fn a_share_in_an_outage_and_a_store_in_the_process_lease_nothing() {
    let limiter = Limiter::new(MemoryStore::new(), hourly(1_000));
    let (admitted, leased) = spend(&limiter, 1_001).await;
    assert_eq!((admitted, leased), (1_000, 0));
    assert!(!MemoryStore::new().leases());
}

#[tokio::test]
async fn reservations_of_leased_policies_settle_beside_what_is_out() {
    let test = "reservations_of_leased_policies_settle_beside_what_is_out";
    let deployment = Deployment::start(Kind::Server, test).expect("a server");
    let limiter = patient_limiter(store(&deployment).await, hourly(10_000));
    let (admitted, leased) = spend(&limiter, 500).await;
    assert!(leased > 0, "{leased}");
    let began = Instant::now();
    let before = remaining(&limiter, "hot").await;
    let reservation = limiter
        .reserve("hot", Cost::new(1_000))
        .await
        .expect("an answer")
        .into_result()
        .expect("a reservation");
    let reserved = remaining(&limiter, "hot").await;
    assert!(
        (before - 1_000..=before - 1_000 + accrued(began)).contains(&reserved),
        "{before} and {reserved}"
    );
    reservation.commit(Cost::new(300)).await.expect("a commit");
    let settled = remaining(&limiter, "hot").await;
    assert!(
        (before - 300..=before - 300 + accrued(began)).contains(&settled),
        "{before} and {settled}"
    );
    let error = limiter
        .reserve("hot", Cost::new(10_000 - admitted))
        .await
        .expect("an answer")
        .into_result();
    assert!(error.is_err(), "outstanding units cannot be reserved");
}
