//! Measures decisions per second of concurrent callers through one Redis server, and their cost in
//! client and server.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate::{Policy, Quota, RedisStore};

use crate::{
    keys::{self, ANY_KEY, KEYS},
    load::{self, Crowd, Decide, Load},
    pace::Pace,
    peers::{
        Call, Cell, Ours, PerCall, Shared, ThrottleKit, Tiers, TowerRateLimitFred,
        TowerRateLimitRedis, TowerRateLimiter, TwoTrips, benchmark, pipeline,
    },
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

/// Sets a limit that is never used up. A unit takes a whole number of microseconds, as with most
/// limits.
const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(1_000_000).with_burst(1_000_000_000),
);

pub(crate) fn run(pace: &Pace) -> Findings {
    let server = Server::start();
    let runtime = load::runtime();
    let mut findings = Findings::default();
    let best = best_of_redis_benchmark(&server, pace);
    let field = Field::new(&runtime, &server);

    let mut spread = Table::new(
        "Through Redis, 10 000 keys",
        "Concurrent callers on one client core, with a server on the other core. All requests are admitted. *Same \
         script* is Tollgate's script, called by hand. *Two round \
         trips* is a read and then an update, as limitador does it. limitador itself is left out, because none of its \
         releases compiles with its Redis storage alone. *redis-cell* is a server module in native code. Its rows are \
         missing if it could not be built. *Noop* is `EVALSHA` of `return 1`. *Tollgate to this row* is a ratio of \
         decisions/s. CPU is the user and kernel time of the process per decision. In the last two rows, *50 × 64* \
         means 50 connections with 64 calls in flight on each.",
        HEADS,
    );
    let mut hot = Table::new(
        "Through Redis, one hot key",
        "The same measurement with all callers on one key. The limit of this key is never used up either.",
        HEADS,
    );
    let callers: &[usize] = if pace.is_quick {
        &[1, 2, 4, 8, 16, 64, 256]
    } else {
        &[1, 2, 4, 8, 16, 64, 256, 1024]
    };
    for &callers in callers {
        let series = field.turns(
            pace,
            Crowd {
                callers,
                keys: KEYS,
            },
        );
        rows(&mut spread, callers, &series);
        if callers < 64 {
            let ratio = series[OURS].ratio(&series[SAME], Load::per_second);
            let measure = format!(
                "decisions/s, {callers} caller{}, to a shared connection with the same script",
                if callers == 1 { "" } else { "s" }
            );
            findings.goal(measure, Target::AtLeast(1.0), ratio, " ×");
            if callers == 1 {
                latency_goals(&mut findings, &series);
            }
        } else {
            goals(&mut findings, callers, &series, &best);
        }
        if callers == 64 || callers == 256 {
            let series = field.turns(pace, Crowd { callers, keys: 1 });
            rows(&mut hot, callers, &series);
            if callers == 256 {
                let measure = "one hot key, 256 callers, decisions per second";
                findings.goal(
                    measure,
                    Target::AtLeast(2e6),
                    series[OURS].median(Load::per_second),
                    "",
                );
            }
        }
    }
    for (callers, run) in [("50 × 64", &best.script), ("50 × 16", &best.noop)] {
        let per_second = figure(run.median(|it| it.per_second));
        let cpu = figure(run.median(benchmark::Run::cpu_us));
        spread.row([callers, &run.name, &per_second, "–", "–", &cpu, "–", "–"].map(str::to_owned));
    }
    let libraries = libraries(&field, pace);
    findings.tables.extend([spread, hot, libraries]);
    findings
}

const HEADS: &[&str] = &[
    "callers",
    "",
    "decisions/s",
    "tollgate to this row",
    "client CPU µs",
    "Redis CPU µs",
    "p50 µs",
    "p99 µs",
];

fn rows(table: &mut Table, callers: usize, series: &[Series<Load>]) {
    for one in series {
        table.row([
            callers.to_string(),
            one.name.clone(),
            figure(one.median(Load::per_second)),
            figure(series[OURS].ratio(one, Load::per_second)),
            figure(one.median(|it| it.client_us)),
            figure(one.median(|it| it.server_us)),
            figure(one.median(|it| it.p50_us)),
            figure(one.median(|it| it.p99_us)),
        ]);
    }
}

fn latency_goals(findings: &mut Findings, series: &[Series<Load>]) {
    for (than, target, peer) in [
        ("a bare `EVALSHA`", 1.1, SAME),
        ("a pool with a checkout per call", 0.6, PER_CALL),
    ] {
        let ratio = series[OURS].ratio(&series[peer], |load| load.p50_us);
        let measure = format!("one caller, p50, to {than}");
        findings.goal(measure, Target::AtMost(target), ratio, " ×");
    }
}

fn goals(findings: &mut Findings, callers: usize, series: &[Series<Load>], best: &Best) {
    let many = callers >= 256;
    let ours = &series[OURS];
    let mut faster = |than: &str, target: f64, ratio: f64| {
        findings.goal(
            format!("decisions/s, {callers} callers, to {than}"),
            Target::AtLeast(target),
            ratio,
            " ×",
        );
    };
    let benchmark = ours.median(Load::per_second) / best.script.median(|it| it.per_second);
    faster(
        "the best rate of redis-benchmark for the same script",
        if many { 2.2 } else { 1.5 },
        benchmark,
    );
    let per_call = ours.ratio(&series[PER_CALL], Load::per_second);
    faster(
        "a pool with a checkout per call",
        if many { 9.0 } else { 6.5 },
        per_call,
    );
    if many {
        if let Some(cell) = series.get(CELL) {
            faster(
                "redis-cell over a shared connection",
                1.7,
                ours.ratio(cell, Load::per_second),
            );
        }
        let client = ours.ratio(&series[SAME], |it| it.client_us);
        findings.goal(
            format!("client CPU, {callers} callers, to a shared connection"),
            Target::AtMost(0.28),
            client,
            " ×",
        );
        let server = ours.median(|it| it.server_us) / best.noop.median(benchmark::Run::cpu_us);
        findings.goal(
            format!("Redis CPU, {callers} callers, to noop"),
            Target::AtMost(1.15),
            server,
            " ×",
        );
    }
}

/// Sets the position of Tollgate in a round. The next constants set the positions of other
/// contestants.
const OURS: usize = 0;
const SAME: usize = 1;
const PER_CALL: usize = 3;
const CELL: usize = 6;

struct Field<'a> {
    runtime: &'a Runtime,
    server: &'a Server,
    ours: Arc<Ours>,
    same: Arc<Shared>,
    noop: Arc<Shared>,
    per_call: Arc<PerCall>,
    two_trips: Arc<TwoTrips>,
    tiers: Arc<Tiers>,
    cell: Option<Arc<Cell>>,
}

impl<'a> Field<'a> {
    fn new(runtime: &'a Runtime, server: &'a Server) -> Self {
        runtime.block_on(async {
            let store = RedisStore::connect(server.url())
                .await
                .expect("the server is up");
            let script = || Call::ours(server, PLENTY, keys::first(KEYS));
            Self {
                runtime,
                server,
                ours: Ours::new(store, PLENTY, KEYS).into(),
                same: Shared::new(server, script()).await.into(),
                noop: Shared::new(server, Call::noop(server, keys::first(KEYS)))
                    .await
                    .into(),
                per_call: PerCall::new(server, script()).into(),
                two_trips: TwoTrips::new(server, KEYS).await.into(),
                tiers: Tiers::new(server, KEYS).await.into(),
                cell: Cell::new(KEYS).await.map(Arc::new),
            }
        })
    }

    fn turns(&self, pace: &Pace, crowd: Crowd) -> Vec<Series<Load>> {
        let server = self.server;
        let mut cases = vec![
            self.case("tollgate", server, &self.ours, crowd),
            self.case("shared connection, same script", server, &self.same, crowd),
            self.case("shared connection, `return 1`", server, &self.noop, crowd),
            self.case(
                "deadpool, a checkout per call, same script",
                server,
                &self.per_call,
                crowd,
            ),
            self.case(
                "shared connection, two round trips",
                server,
                &self.two_trips,
                crowd,
            ),
            self.case("tower-rate-tier", server, &self.tiers, crowd),
        ];
        if let Some(cell) = &self.cell {
            cases.push(self.case("shared connection, redis-cell", cell.server(), cell, crowd));
        }
        alternate(pace.load, cases)
    }

    fn case<'b, D: Decide>(
        &'b self,
        name: &str,
        server: &'b Server,
        decide: &'b Arc<D>,
        crowd: Crowd,
    ) -> Case<'b, Load> {
        Case::new(name, move |time| {
            let load = load::run(self.runtime, server, decide, crowd, time);
            assert_eq!(
                load.admitted, load.decisions,
                "all requests are within the limit"
            );
            load
        })
    }
}

struct Best {
    script: Series<benchmark::Run>,
    noop: Series<benchmark::Run>,
}

/// Measures the best rate of redis-benchmark for the script, and the CPU time of a noop.
///
/// The rate is measured with 64 calls in flight on each connection. redis-benchmark cannot send
/// packed numbers, so a plain loop with packed numbers runs too, and the faster one counts. The
/// noop runs with 16 calls in flight. Its CPU time is the unit of this project.
fn best_of_redis_benchmark(server: &Server, pace: &Pace) -> Best {
    let words = Call::ours(server, PLENTY, [ANY_KEY.to_owned()]).words_by_hand();
    let noop = Call::noop(server, [ANY_KEY.to_owned()]).words_by_hand();
    let packed = Call::ours(server, PLENTY, keys::first(KEYS));
    let cases = vec![
        Case::new("redis-benchmark, `return 1` (noop)", |time| {
            benchmark::run(server, 16, pace.calls_in(time), KEYS, &noop)
        }),
        Case::new("redis-benchmark, same script, decimal numbers", |time| {
            benchmark::run(server, 64, pace.calls_in(time), KEYS, &words)
        }),
        Case::new("plain loop, same script, packed numbers", |time| {
            pipeline::run(server, 64, pace.calls_in(time), KEYS, |key| {
                packed.words(key)
            })
        }),
    ];
    let mut series = alternate(pace.load, cases);
    let noop = series.remove(0);
    series.sort_by(|a, b| {
        b.median(|it| it.per_second)
            .total_cmp(&a.median(|it| it.per_second))
    });
    Best {
        script: series.remove(0),
        noop,
    }
}

/// Measures the other libraries that call a script once for each decision.
fn libraries(field: &Field<'_>, pace: &Pace) -> Table {
    let mut table = Table::new(
        "Through Redis, libraries for Rust",
        "10 000 keys, all requests are admitted. Each library runs the generic cell rate algorithm in a script of its \
         own, over one connection. tower-rate-limit-redis is called through its layer around a service that does \
         nothing, because it has no smaller way. trypema is left out: it counts buckets of a sliding window.",
        HEADS,
    );
    let server = field.server;
    let (limiter, kit, redis, fred) = field.runtime.block_on(async {
        (
            Arc::new(TowerRateLimiter::new(server, KEYS).await),
            Arc::new(ThrottleKit::new(server, KEYS).await),
            Arc::new(TowerRateLimitRedis::new(server, KEYS).await),
            Arc::new(TowerRateLimitFred::new(server, KEYS).await),
        )
    });
    for callers in [1, 16, 256] {
        let crowd = Crowd {
            callers,
            keys: KEYS,
        };
        let cases = vec![
            field.case("tollgate", server, &field.ours, crowd),
            field.case("tower-rate-limiter", server, &limiter, crowd),
            field.case("throttle-kit", server, &kit, crowd),
            field.case("tower-rate-limit-redis", server, &redis, crowd),
            field.case("tower-rate-limit-fred", server, &fred, crowd),
            field.case("tower-rate-tier", server, &field.tiers, crowd),
        ];
        rows(&mut table, callers, &alternate(pace.load, cases));
    }
    table
}
