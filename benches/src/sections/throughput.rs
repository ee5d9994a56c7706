//! Measures decisions per second of concurrent callers through one Redis server, near and far, and
//! their cost in client and server.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Runtime;
use tollgate::{Lease, Limiter, MemoryStore, RedisStore};

use super::PLENTY;
use crate::{
    keys::KEYS,
    load::{self, Contestant, Crowd, Decide, Load},
    pace::{Pace, Rounds},
    peers::{
        Call, Cell, Ours, PerCall, Shared, ThrottleKit, Tiers, TowerRateLimitFred,
        TowerRateLimitRedis, TowerRateLimiter, TwoTrips,
    },
    report::{Findings, Table, Target, figure},
    rounds::Series,
    server::Server,
};

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

/// Sets the position of Tollgate in a round, that of the same script over a shared connection, and
/// that of a pool.
const OURS: usize = 0;
const SAME: usize = 1;
const PER_CALL: usize = 3;

pub(crate) fn run(pace: &Pace) -> Findings {
    let bench = Bench {
        runtime: load::runtime(),
        server: Arc::new(Server::start()),
        cell: Cell::server().map(Arc::new),
    };
    let mut findings = Findings::default();
    bench.near(pace, &mut findings);
    bench.leased(pace, &mut findings);
    bench.libraries(pace, &mut findings);
    bench.far(pace, &mut findings);
    findings
}

struct Bench {
    runtime: Runtime,
    server: Arc<Server>,
    cell: Option<Arc<Server>>,
}

impl Bench {
    fn near(&self, pace: &Pace, findings: &mut Findings) {
        let mut spread = Table::new(
            "Through Redis, 10 000 keys",
            "Concurrent callers on one client core, with a server on the other core. All requests are admitted. *Same \
             script* is Tollgate's script, called by hand. *Two round \
             trips* is a read and then an update, as limitador does it. limitador itself is left out, because none of its \
             releases compiles with its Redis storage alone. *redis-cell* is a server module in native code. Its rows are \
             missing if it could not be built. *Noop* is `EVALSHA` of `return 1`. *Tollgate to this row* is a ratio of \
             decisions/s. CPU is the user and kernel time of the process per decision.",
            HEADS,
        );
        let mut hot = Table::new(
            "Through Redis, one hot key",
            "The same measurement with all callers on one key. The limit of this key is never used up either.",
            HEADS,
        );
        let (server, url) = (&self.server, self.server.url());
        let mut contestants = vec![
            self.ours(),
            self.contestant(
                "shared connection, same script",
                self.block_on(Shared::new(&url, false, Call::ours(server, PLENTY))),
            ),
            self.contestant(
                "shared connection, `return 1`",
                self.block_on(Shared::new(&url, false, Call::noop(server))),
            ),
            self.contestant(
                "deadpool, a checkout per call, same script",
                PerCall::new(server, Call::ours(server, PLENTY)),
            ),
            self.contestant(
                "shared connection, two round trips",
                self.block_on(TwoTrips::new(server)),
            ),
            self.contestant("tower-rate-tier", self.block_on(Tiers::new(server))),
        ];
        if let Some(server) = &self.cell {
            let cell = self.block_on(Cell::new(&server.url(), false));
            let name = "shared connection, redis-cell";
            contestants.push(Contestant::new(name, &self.runtime, Some(server), cell));
        }
        for callers in [1, 2, 4, 8, 16, 64, 256, 1024] {
            let series = load::turns(&contestants, pace.load, Crowd::near(callers, KEYS));
            rows(&mut spread, &callers.to_string(), &series);
            let ratio = |to: usize| series[OURS].ratio(&series[to], Load::per_second);
            let mut goal = |than: &str, least: f64, ratio: f64| {
                let measure = format!("decisions/s, {callers} callers, to {than}");
                findings.goal(measure, Target::AtLeast(least), ratio, " ×");
            };
            if callers <= 16 {
                goal("a shared connection", 0.97, ratio(SAME));
            } else {
                goal("a shared connection", 1.7, ratio(SAME));
                goal("a pool", 6.5, ratio(PER_CALL));
            }
            if callers == 64 || callers == 256 {
                let series = load::turns(&contestants, pace.load, Crowd::near(callers, 1));
                rows(&mut hot, &callers.to_string(), &series);
            }
        }
        findings.tables.extend([spread, hot]);
    }

    /// Measures leased keys, and many costs, beside the same keys without.
    fn leased(&self, pace: &Pace, findings: &mut Findings) {
        let about = "256 callers. A leased key takes units in advance, with the default terms. *1000 costs* draws the cost \
                     of each request from so many. *To this row* is a ratio of decisions/s.";
        let heads = [&["keys"][..], &HEADS[1..]].concat();
        let mut table = Table::new("Leased keys, and many costs", about, &heads);
        let contestants = [
            self.ours(),
            self.contestant(
                "tollgate, leased",
                Ours::new(self.store(&self.server.url()), PLENTY.leased(Lease::new())),
            ),
            self.contestant(
                "tollgate, 1000 costs",
                Ours::new(self.store(&self.server.url()), PLENTY).with_costs(1_000),
            ),
            self.contestant("in process", Ours::new(MemoryStore::new(), PLENTY)),
        ];
        for keys in [KEYS, 1] {
            let series = load::turns(&contestants, pace.load, Crowd::near(256, keys));
            rows(&mut table, &keys.to_string(), &series);
            if keys == KEYS {
                let ratio = series[2].ratio(&series[OURS], Load::per_second);
                let measure = "1000 different costs, decisions/s, to one cost";
                findings.goal(measure, Target::AtLeast(0.9), ratio, " ×");
            }
        }
        findings.tables.push(table);
    }

    /// Measures the other libraries that call a script once for each decision.
    fn libraries(&self, pace: &Pace, findings: &mut Findings) {
        let mut table = Table::new(
            "Through Redis, libraries for Rust",
            "10 000 keys, all requests are admitted. Each library runs the generic cell rate algorithm in a script of its \
             own, over one connection. tower-rate-limit-redis is called through its layer around a service that does \
             nothing, because it has no smaller way. trypema is left out: it counts buckets of a sliding window.",
            HEADS,
        );
        let server = &self.server;
        let contestants = [
            self.ours(),
            self.contestant(
                "tower-rate-limiter",
                self.block_on(TowerRateLimiter::new(server)),
            ),
            self.contestant("throttle-kit", self.block_on(ThrottleKit::new(server))),
            self.contestant(
                "tower-rate-limit-redis",
                self.block_on(TowerRateLimitRedis::new(server)),
            ),
            self.contestant(
                "tower-rate-limit-fred",
                self.block_on(TowerRateLimitFred::new(server)),
            ),
            self.contestant("tower-rate-tier", self.block_on(Tiers::new(server))),
        ];
        for callers in [1, 16, 256] {
            let series = load::turns(&contestants, pace.load, Crowd::near(callers, KEYS));
            rows(&mut table, &callers.to_string(), &series);
        }
        findings.tables.push(table);
    }

    /// Measures callers of a server that is milliseconds away.
    fn far(&self, pace: &Pace, findings: &mut Findings) {
        let about = "Concurrent callers, 10 000 keys, closed loop. A proxy between client and server adds the round trip, \
                     and up to a millisecond more. The plain client is one shared connection that calls the same script once \
                     for each check. It has no deadline: a check takes as long as the server takes. Nagle's algorithm is off \
                     for all contestants. The default of `redis` has it on, which doubles the latency at a distance. Tollgate \
                     has its default deadline of 50 ms, also at 20 ms. *Decisions/s* and the percentiles count decisions of \
                     the store alone. *Without the store* is the share of decisions that Tollgate made in process, by its rule \
                     for outages.";
        let heads = [
            "round trip ms",
            "callers",
            "",
            "decisions/s",
            "tollgate to this row",
            "p50 ms",
            "p99 ms",
            "without the store",
        ];
        let title = "Distance: a server that is milliseconds away";
        let mut table = Table::new(title, about, &heads);
        let (trips, crowds): (&[u64], &[usize]) = if pace.is_quick {
            (&[1, 20], &[64, 1_024])
        } else {
            (&[1, 5, 20], &[64, 256, 1_024, 4_096])
        };
        for &trip_ms in trips {
            let trip = Duration::from_millis(trip_ms);
            let line = self.server.at_a_distance(trip);
            let ours = Ours::of(Limiter::new(self.store(&line.url()), PLENTY));
            let call = Call::ours(&self.server, PLENTY);
            let plain = self.block_on(Shared::new(&line.url(), true, call));
            let mut contestants = vec![
                self.contestant("tollgate", ours),
                self.contestant("plain client", plain),
            ];
            let cell = self
                .cell
                .as_ref()
                .map(|cell| (cell, cell.at_a_distance(trip)));
            if let Some((server, line)) = &cell {
                let cell = self.block_on(Cell::new(&line.url(), true));
                let name = "redis-cell, shared connection";
                contestants.push(Contestant::new(name, &self.runtime, Some(*server), cell));
            }
            // A turn has at least twenty round trips.
            let rounds = Rounds {
                count: pace.load.count,
                turn: pace.load.turn.max(trip * 20),
            };
            for &callers in crowds {
                let crowd = Crowd {
                    trip,
                    ..Crowd::near(callers, KEYS)
                };
                let series = load::turns(&contestants, rounds, crowd);
                for one in &series {
                    table.row([
                        trip_ms.to_string(),
                        callers.to_string(),
                        one.name.clone(),
                        figure(one.median(Load::per_second)),
                        figure(series[OURS].ratio(one, Load::per_second)),
                        figure(one.median(|load| load.p50_us / 1e3)),
                        figure(one.median(|load| load.p99_us / 1e3)),
                        format!("{} %", figure(100.0 * one.median(Load::share_without))),
                    ]);
                }
            }
        }
        findings.tables.push(table);
    }

    fn contestant(&self, name: &str, decide: impl Decide) -> Contestant<'_> {
        Contestant::new(name, &self.runtime, Some(&self.server), decide)
    }

    fn ours(&self) -> Contestant<'_> {
        let ours = Ours::new(self.store(&self.server.url()), PLENTY);
        self.contestant("tollgate", ours)
    }

    fn store(&self, url: &str) -> RedisStore {
        let store = self.block_on(RedisStore::connect(url));
        store.expect("the server is up")
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

fn rows(table: &mut Table, begin: &str, series: &[Series<Load>]) {
    for one in series {
        table.row([
            begin.to_owned(),
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
