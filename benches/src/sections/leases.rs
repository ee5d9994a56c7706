//! Measures leased keys beside the same keys without leases.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate::{Lease, MemoryStore, Policy, Quota, RedisStore};

use crate::{
    keys::KEYS,
    load::{self, Crowd, Load},
    pace::Pace,
    peers::Ours,
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

/// Sets a limit that is never used up, as in the section about throughput.
const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(1_000_000).with_burst(1_000_000_000),
);

/// The same limit, leased.
const LEASED: Policy = PLENTY.leased(Lease::new());

const CALLERS: usize = 256;

/// Stores a turn, and the trips that it made.
struct Turn {
    load: Load,
    trips: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let mut findings = Findings::default();
    let server = Server::start();
    let runtime = load::runtime();
    let mut table = Table::new(
        "Leased keys",
        format!(
            "{CALLERS} concurrent callers on one client core, with a server on the other core. All requests are admitted. \
             A leased key takes units in advance, with the default terms. A trip is a call of a script; a call may decide \
             many checks."
        ),
        &[
            "keys",
            "",
            "decisions/s",
            "to no lease",
            "trips per decision",
            "client CPU µs",
            "Redis CPU µs",
            "p50 µs",
            "p99 µs",
        ],
    );
    for keys in [KEYS, 1] {
        let series = turns(&runtime, &server, pace, keys);
        for one in &series {
            table.row([
                keys.to_string(),
                one.name.clone(),
                figure(one.median(per_second)),
                figure(one.ratio(&series[0], per_second)),
                figure(one.median(|turn| turn.trips)),
                figure(one.median(|turn| turn.load.client_us)),
                figure(one.median(|turn| turn.load.server_us)),
                figure(one.median(|turn| turn.load.p50_us)),
                figure(one.median(|turn| turn.load.p99_us)),
            ]);
        }
        let name = if keys == 1 {
            "one hot key".to_owned()
        } else {
            format!("{keys} hot keys")
        };
        let trips = series[1].median(|turn| turn.trips);
        findings.goal(
            format!("{name}, leased, trips per decision"),
            Target::AtMost(0.05),
            trips,
            "",
        );
    }
    findings.tables.push(table);
    findings
}

fn per_second(turn: &Turn) -> f64 {
    turn.load.per_second()
}

fn turns(runtime: &Runtime, server: &Server, pace: &Pace, keys: usize) -> Vec<Series<Turn>> {
    let store = || {
        runtime
            .block_on(RedisStore::connect(server.url()))
            .expect("the server is up")
    };
    let contestants = [
        ("Redis", Arc::new(Ours::new(store(), PLENTY, keys))),
        ("Redis, leased", Arc::new(Ours::new(store(), LEASED, keys))),
        (
            "in process",
            Arc::new(Ours::new(MemoryStore::new(), PLENTY, keys)),
        ),
    ];
    let cases = contestants.iter().map(|(name, ours)| {
        Case::new(*name, move |time| {
            let before = server.usage();
            let load = load::run(
                runtime,
                server,
                ours,
                Crowd {
                    callers: CALLERS,
                    keys,
                },
                time,
            );
            assert_eq!(
                load.admitted, load.decisions,
                "all requests are within the limit"
            );
            let trips =
                server.usage().since(&before).calls("evalsha") as f64 / load.decisions as f64;
            Turn { load, trips }
        })
    });
    alternate(pace.load, cases.collect())
}
