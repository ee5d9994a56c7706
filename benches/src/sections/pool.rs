//! Compares a store that takes its connections from a pool with a store that uses a URL.

use std::sync::Arc;

use tollgate::{Policy, Quota, RedisStore};

use crate::{
    keys::KEYS,
    load::{self, Crowd, Decide, Load},
    pace::Pace,
    peers::{Ours, pool},
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
            Case::new("a URL as the source", |time| {
                load::run(&runtime, &server, &own, crowd, time)
            }),
            Case::new("a pool as the source", |time| {
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
    findings.tables.push(table);
    findings
}
