//! The answers of a limiter without its store, for each kind of check. That a server which is away, refuses or is late
//! counts as such is in `faults.rs`, `refusing_servers.rs` and `silent_server.rs`; the log is in `telemetry/outage_log.rs`.

use tollgate::{
    CalendarUnit, Cost, Costs, ErrorKind, Key, Limiter, Outage, Policy, PolicySet, Priority, Quota,
    TimeZone, store::Clock, test_util::FaultyStore,
};
use tollgate_test_support::{decided_at, remaining};

const FLEET: Policy = Policy::fixed_window("fleet", Quota::per_day(100));

fn limiter(store: &FaultyStore, policies: impl Into<PolicySet>, outage: Outage) -> Limiter {
    Limiter::builder(store.clone())
        .policies(policies)
        .on_outage(outage)
        .outage_clock(Clock::manual(1_000_000_000_000_000))
        .build()
}

/// Checks, and returns what each policy was charged and has left. A look before it has the same answer.
async fn answer(limiter: &Limiter, key: &Key, costs: &Costs) -> String {
    let look = limiter.peek(key).cost(costs.clone()).await;
    let look = look.expect("a state");
    let decision = decided_at(limiter, key.clone(), costs.clone()).await;
    assert!(look.is_degraded() && decision.is_degraded());
    assert_eq!(look.retry_after().is_none(), decision.is_allowed());
    let states = decision.states().map(|state| match decision.is_allowed() {
        true => format!(" {}/{}", state.cost().units(), state.remaining()),
        false => format!(" {}", state.remaining()),
    });
    let word = if decision.is_allowed() { "ok" } else { "no" };
    word.to_owned() + &states.collect::<String>()
}

#[tokio::test]
async fn each_kind_of_check_is_decided_by_the_share_of_this_replica() {
    let day = || Policy::token_bucket("day", Quota::per_day(12));
    let wide = || Policy::fixed_window("wide", Quota::per_day(100));
    let log = || Policy::sliding_log("log", Quota::per_day(12));
    let tokens = || Policy::fixed_window("tokens", Quota::per_day(10_000));
    let month = Policy::calendar_window("month", 12, CalendarUnit::Month, TimeZone::UTC);
    let address = Policy::fixed_window("address", Quota::per_day(5));
    let (one, two) = (|| Key::new("one"), || Key::new("two"));
    let branches = |address| Key::new(address).with_branch("api key");
    let all = |units| Costs::new(Cost::new(units));
    let low = |units| all(units).with_priority(Priority::BACKGROUND);
    let each = |units| Costs::from([("fleet", 1), ("tokens", units)]);
    // The policies, the replicas, and the checks one after the other.
    let rows = [
        (
            PolicySet::from([FLEET, tokens()]),
            10,
            vec![(one(), each(850), "ok 1/9 850/150")],
        ),
        // A cost above the share spends the whole share. A part of it is not enough.
        (
            day().into(),
            4,
            vec![
                (one(), all(12), "ok 3/0"),
                (one(), all(12), "no 0"),
                (one(), all(1), "no 0"),
                (two(), all(1), "ok 1/2"),
                (two(), all(12), "no 2"),
            ],
        ),
        (
            log().into(),
            4,
            vec![
                (one(), all(12), "ok 3/0"),
                (one(), all(1), "no 0"),
                (two(), all(1), "ok 1/2"),
                (two(), all(12), "no 2"),
            ],
        ),
        (
            [day(), wide()].into(),
            4,
            vec![
                (one(), all(12), "ok 3/0 12/13"),
                (one(), all(1), "no 0 13"),
                (two(), all(1), "ok 1/2 1/24"),
                (two(), all(12), "no 2 24"),
            ],
        ),
        (
            [address, wide().at_branch(2)].into(),
            5,
            vec![
                (branches("a"), all(1), "ok 1/0 1/19"),
                (branches("a"), all(1), "no 0 19"),
                (branches("b"), all(1), "ok 1/0 1/18"),
                (branches("b"), all(1), "no 0 18"),
            ],
        ),
        // The lowest rank has 60 % of the share, and a cost above that spends no more.
        (
            FLEET.into(),
            2,
            vec![
                (one(), low(29), "ok 29/1"),
                (one(), low(40), "no 1"),
                (one(), low(1), "ok 1/0"),
                (one(), low(1), "no 0"),
                (one(), all(20), "ok 20/0"),
                (two(), low(31), "ok 30/0"),
                (two(), low(1), "no 0"),
                (Key::new("three"), low(60), "ok 30/0"),
            ],
        ),
        (
            month.into(),
            4,
            vec![
                (one(), all(2), "ok 2/1"),
                (one(), all(1), "ok 1/0"),
                (one(), all(1), "no 0"),
            ],
        ),
    ];
    let store = FaultyStore::default();
    store.fail();
    for (policies, replicas, checks) in rows {
        let limiter = limiter(&store, policies, Outage::local(replicas));
        for (at, (key, costs, expected)) in checks.into_iter().enumerate() {
            let found = answer(&limiter, &key, &costs).await;
            assert_eq!(found, expected, "check {at} of {:?}", limiter.policies());
        }
    }
}

#[tokio::test]
async fn an_open_limiter_admits_every_cost_and_a_closed_one_has_the_error_of_the_store() {
    let store = FaultyStore::default();
    store.fail_with(ErrorKind::ConnectionLost);
    let key = Key::new("acme");
    let open = limiter(&store, FLEET, Outage::Open);
    for _ in 0..3 {
        let all = Costs::new(Cost::new(100));
        assert_eq!(answer(&open, &key, &all).await, "ok");
    }
    let closed = limiter(&store, FLEET, Outage::Closed);
    let errors = [
        closed.peek(&key).cost(Cost::ONE).await.map(drop),
        closed.check(&key).await.map(drop),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::ConnectionLost);
    }
}

#[tokio::test]
async fn what_an_outage_charged_returns_to_the_share() {
    for outage in [Outage::local(2), Outage::Open] {
        let store = FaultyStore::default();
        let limiter = limiter(&store, FLEET, outage);
        let is_open = outage == Outage::Open;
        store.fail();
        let before = decided_at(&limiter, "all", Cost::new(30)).await;
        let decision = decided_at(&limiter, "all", Cost::new(20)).await;
        let denied = decided_at(&limiter, "all", Cost::new(36)).await;
        assert_eq!(denied.is_denied(), !is_open);
        for (key, cost, of, left) in [
            ("all", 5, &decision, 5),
            ("all", 80, &before, 35),
            ("other", 1, &decision, 35),
            // A denial has spent nothing.
            ("all", 36, &denied, 35),
        ] {
            let refund = limiter.refund(key, Cost::new(cost)).of(of).await;
            refund.expect("a refund");
            let state = limiter.peek("all").await.expect("a state");
            let state = state.state("fleet").map(|state| state.remaining());
            assert_eq!(state, (!is_open).then_some(left), "{cost} units");
        }
        store.recover();
        // The store has seen neither the charge nor the refund.
        let refund = limiter.refund("all", Cost::new(5)).of(&decision).await;
        refund.expect("a refund");
        assert_eq!(remaining(&limiter, "all").await, 100);
    }
}
