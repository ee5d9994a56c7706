//! Measures the latency for one caller, and compares a store that uses a pool with a store that
//! uses a URL.

use std::sync::Arc;

use tollgate::{Policy, Quota, RedisStore};

use crate::{
    keys::{self, KEYS},
    load::{self, Crowd, Decide, Load},
    pace::Pace,
    peers::{Call, Ours, PerCall, Shared, pool},
    report::{Findings, Table, Target, figure},
    rounds::{Case, alternate},
    server::Server,
};

const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(1_000_000).with_burst(1_000_000_000),
);

pub(crate) fn run(pace: &Pace) -> Findings {
    let mut findings = Findings::default();
    findings.tables = vec![
        one_caller(pace, &mut findings),
        pool_as_source(pace, &mut findings),
    ];
    findings
}

fn one_caller(pace: &Pace, findings: &mut Findings) -> Table {
    let server = Server::start();
    let runtime = load::runtime();
    let (ours, same, noop, per_call) = runtime.block_on(async {
        let store = RedisStore::connect(server.url())
            .await
            .expect("the server is up");
        let call = Call::ours(&server, PLENTY, keys::first(KEYS));
        (
            Arc::new(Ours::new(store, PLENTY, KEYS)),
            Arc::new(Shared::new(&server, call.clone()).await),
            Arc::new(Shared::new(&server, Call::noop(&server, keys::first(KEYS))).await),
            Arc::new(PerCall::new(&server, call)),
        )
    });
    let crowd = Crowd {
        callers: 1,
        keys: KEYS,
    };
    let before = server.usage();
    let trips = load::run(&runtime, &server, &ours, crowd, pace.load.turn);
    let calls = server.usage().since(&before).calls("evalsha") as f64 / trips.decisions as f64;
    assert!(
        (0.99..1.01).contains(&calls),
        "{calls} calls per decision with one caller"
    );

    let series = alternate(
        pace.load,
        vec![
            case("tollgate", |time| {
                load::run(&runtime, &server, &ours, crowd, time)
            }),
            case("the same `EVALSHA` by hand, shared connection", |time| {
                load::run(&runtime, &server, &same, crowd, time)
            }),
            case("`EVALSHA` of `return 1`, shared connection", |time| {
                load::run(&runtime, &server, &noop, crowd, time)
            }),
            case("deadpool, a checkout per call, same script", |time| {
                load::run(&runtime, &server, &per_call, crowd, time)
            }),
        ],
    );
    let p50 = |load: &Load| load.p50_us;
    findings.goal(
        "one caller, p50, to a bare `EVALSHA`",
        Target::AtMost(1.1),
        series[0].ratio(&series[1], p50),
        " ×",
    );
    findings.goal(
        "one caller, p50, to a pool with a checkout per call",
        Target::AtMost(0.6),
        series[0].ratio(&series[3], p50),
        " ×",
    );
    let about = "Latency with one caller. Each decision of Tollgate takes one round trip. A shared connection is a \
                 connection of the same kind as Tollgate's.";
    let mut table = Table::new(
        "One caller",
        about,
        &["", "p50 µs", "p99 µs", "p50, tollgate to this row"],
    );
    for one in &series {
        let ratio = series[0].ratio(one, p50);
        table.row([
            one.name.clone(),
            figure(one.median(p50)),
            figure(one.median(|it| it.p99_us)),
            figure(ratio),
        ]);
    }
    table
}

fn case<'a>(name: &str, turn: impl FnMut(std::time::Duration) -> Load + 'a) -> Case<'a, Load> {
    Case::new(name, turn)
}

fn pool_as_source(pace: &Pace, findings: &mut Findings) -> Table {
    let server = Server::start();
    let runtime = load::runtime();
    let (own, pooled) = runtime.block_on(async {
        let own = RedisStore::connect(server.url())
            .await
            .expect("the server is up");
        let pooled = RedisStore::open(pool(&server, 16)).expect("a store");
        (
            Arc::new(Ours::new(own, PLENTY, KEYS)),
            Arc::new(Ours::new(pooled, PLENTY, KEYS)),
        )
    });
    let crowd = Crowd {
        callers: 64,
        keys: KEYS,
    };
    let pings = |ours: &Arc<Ours>| {
        let before = server.usage();
        let decisions = load::run(&runtime, &server, ours, crowd, pace.load.turn).decisions;
        server.usage().since(&before).calls("ping") as f64 / decisions as f64
    };
    // The first decision takes a connection out of the pool, which sends a ping once.
    runtime.block_on(pooled.decide(0));
    let pings = [pings(&own), pings(&pooled)];
    assert_eq!(pings, [0.0; 2], "pings per decision");

    let series = alternate(
        pace.load,
        vec![
            case("a URL as the source", |time| {
                load::run(&runtime, &server, &own, crowd, time)
            }),
            case("a pool as the source", |time| {
                load::run(&runtime, &server, &pooled, crowd, time)
            }),
        ],
    );
    let share = series[1].ratio(&series[0], Load::per_second);
    findings.goal(
        "a pool as the source, throughput to a URL, 64 callers",
        Target::AtLeast(0.95),
        share,
        " ×",
    );
    let about = "64 callers, 10 000 keys. A pool sends a ping on each checkout. A store checks out a connection only \
                 once.";
    let mut table = Table::new(
        "A pool as the source",
        about,
        &["", "decisions/s", "to a URL", "pings per decision"],
    );
    for (one, pings) in series.iter().zip(pings) {
        let ratio = one.ratio(&series[0], Load::per_second);
        table.row([
            one.name.clone(),
            figure(one.median(Load::per_second)),
            figure(ratio),
            format!("{pings}"),
        ]);
    }
    table
}
