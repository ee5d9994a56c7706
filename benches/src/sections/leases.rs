//! Measures leased keys beside the same keys without leases, from one process and from several.

use std::{sync::Arc, thread, time::Duration};

use tokio::runtime::Runtime;
use tollgate::{Lease, MemoryStore, Policy, Quota, RedisStore};

use super::probed;
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

const PROCESSES: [usize; 3] = [1, 2, 4];

/// The name of the probe, and its kinds.
pub(super) const PROBE: &str = "leases";
const KINDS: [&str; 2] = ["direct", "leased"];

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
        "Leased keys, one process",
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
    findings.tables.push(several(&server, pace));
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

/// Measures several processes on one hot key.
fn several(server: &Server, pace: &Pace) -> Table {
    let mut table = Table::new(
        "One hot key, several processes",
        "All processes have the client core together, each with 256 callers. So the rate of a leased key does not grow with \
         their number here; on machines of their own it would. A key without leases cannot be decided faster than the core of \
         the server allows, whatever the number of processes.",
        &[
            "processes",
            "",
            "decisions/s of all",
            "trips/s of all",
            "Redis CPU µs",
            "p50 µs",
            "p99 µs",
        ],
    );
    for processes in PROCESSES {
        let cases =
            KINDS.map(|kind| Case::new(kind, move |time| together(server, processes, kind, time)));
        for one in alternate(pace.load, cases.into()) {
            table.row([
                processes.to_string(),
                if one.name == KINDS[1] {
                    "Redis, leased"
                } else {
                    "Redis"
                }
                .to_owned(),
                figure(one.median(|turn| turn.per_second)),
                figure(one.median(|turn| turn.trips_per_second)),
                figure(one.median(|turn| turn.server_us)),
                figure(one.median(|turn| turn.p50_us)),
                figure(one.median(|turn| turn.p99_us)),
            ]);
        }
    }
    table
}

/// Stores what several processes did at the same time.
struct Together {
    per_second: f64,
    trips_per_second: f64,
    server_us: f64,
    p50_us: f64,
    p99_us: f64,
}

fn together(server: &Server, processes: usize, kind: &str, time: Duration) -> Together {
    let (url, millis) = (server.url(), time.as_millis().to_string());
    let before = server.usage();
    let figures: Vec<[f64; 4]> = thread::scope(|scope| {
        let started: Vec<_> = (0..processes)
            .map(|_| scope.spawn(|| probed(&[PROBE, kind, &url, &millis])))
            .collect();
        started
            .into_iter()
            .map(|process| process.join().expect("a process"))
            .collect()
    });
    let used = server.usage().since(&before);
    let decisions: f64 = figures.iter().map(|figures| figures[0]).sum();
    let seconds = figures.iter().map(|figures| figures[1]).fold(0.0, f64::max);
    let worst = |at: usize| {
        figures
            .iter()
            .map(|figures| figures[at])
            .fold(0.0, f64::max)
    };
    Together {
        per_second: decisions / seconds,
        trips_per_second: used.calls("evalsha") as f64 / seconds,
        server_us: used.cpu.as_secs_f64() * 1e6 / decisions,
        p50_us: worst(2),
        p99_us: worst(3),
    }
}

/// Runs one of several processes. Returns its decisions, their time in seconds, and the latencies.
pub(super) fn probe(kind: &str, url: &str, millis: &str) -> [f64; 4] {
    let runtime = load::runtime();
    let policy = if kind == KINDS[1] { LEASED } else { PLENTY };
    let store = runtime
        .block_on(RedisStore::connect(url))
        .expect("the server is up");
    let ours = Arc::new(Ours::new(store, policy, 1));
    let time = Duration::from_millis(millis.parse().expect("a number of milliseconds"));
    let load = load::run_alone(
        &runtime,
        &ours,
        Crowd {
            callers: CALLERS,
            keys: 1,
        },
        time,
    );
    [
        load.decisions as f64,
        load.elapsed.as_secs_f64(),
        load.p50_us,
        load.p99_us,
    ]
}
