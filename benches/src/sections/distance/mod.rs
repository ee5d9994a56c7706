//! Measures concurrent callers of a server that is milliseconds away.

mod goals;

use std::{sync::Arc, time::Duration};

use tokio::runtime::Runtime;
use tollgate::{Policy, PolicySet, Quota, RedisStore};
use tollgate_tests::{Mode, Proxy};

use crate::{
    keys::{self, KEYS},
    load::{Crowd, Decide},
    machine,
    pace::{Pace, Rounds},
    peers::{Call, Cell, Costs, Many, Shared},
    report::{Findings, Table, figure},
    rounds::{Case, Series, alternate},
    server::Server,
    steady::{self, Flow},
};

/// Sets a limit that is never used up.
const PLENTY: Policy = Policy::token_bucket(
    "plenty",
    Quota::per_second(1_000_000).with_burst(1_000_000_000),
);

/// Sets the position of Tollgate in a round, and that of the plain client.
const OURS: usize = 0;
const PLAIN: usize = 1;

/// Holds the turns of all contestants for one distance and one number of callers.
struct Cells {
    trip: Duration,
    callers: usize,
    series: Vec<Series<Flow>>,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let bench = Bench {
        runtime: crate::load::runtime(),
        server: Server::start(),
        cell: Cell::start(),
    };
    let mut findings = Findings::default();
    let capacity = bench.capacity(pace);
    let (trips, crowds): (&[u64], &[usize]) = if pace.is_quick {
        (&[1, 20], &[64, 1_024])
    } else {
        (&[1, 5, 20], &[64, 256, 1_024, 4_096])
    };
    let cells: Vec<Cells> = trips
        .iter()
        .flat_map(|&ms| bench.at(pace, Duration::from_millis(ms), crowds))
        .collect();
    goals::add(&mut findings, &cells, capacity);
    findings.tables.push(table(&cells));
    findings
}

struct Bench {
    runtime: Runtime,
    server: Server,
    cell: Option<Arc<Server>>,
}

impl Bench {
    /// Measures all contestants through a line of this length.
    fn at(&self, pace: &Pace, trip: Duration, crowds: &[usize]) -> Vec<Cells> {
        let line = delayed(&self.server, trip);
        let cell_line = self.cell.as_ref().map(|server| delayed(server, trip));
        let (ours, plain) = self.contestants(&line.url());
        let cell = self
            .cell
            .as_ref()
            .zip(cell_line.as_ref())
            .map(|(server, line)| {
                let cell = async { Cell::at(Arc::clone(server), &line.url(), KEYS).await };
                Arc::new(self.runtime.block_on(cell))
            });
        // A turn has at least twenty round trips.
        let rounds = Rounds {
            count: pace.load.count,
            turn: pace.load.turn.max(trip * 20),
        };
        let turns = |&callers: &usize| {
            let crowd = Crowd {
                callers,
                keys: KEYS,
            };
            let mut cases = vec![
                self.case("tollgate", &self.server, &ours, crowd, trip),
                self.case("plain client", &self.server, &plain, crowd, trip),
            ];
            if let Some(cell) = &cell {
                cases.push(self.case(
                    "redis-cell, shared connection",
                    cell.server(),
                    cell,
                    crowd,
                    trip,
                ));
            }
            Cells {
                trip,
                callers,
                series: alternate(rounds, cases),
            }
        };
        crowds.iter().map(turns).collect()
    }

    fn contestants(&self, url: &str) -> (Arc<Many>, Arc<Shared>) {
        let sets = [PolicySet::from(PLENTY)];
        self.runtime.block_on(async {
            let store = RedisStore::connect(url).await.expect("the server is up");
            let ours = Many::usual(&store, &sets, KEYS, Costs::one());
            let call = Call::ours(&self.server, PLENTY, keys::first(KEYS));
            (Arc::new(ours), Arc::new(Shared::at(url, call).await))
        })
    }

    fn case<'a, D: Decide>(
        &'a self,
        name: &str,
        server: &'a Server,
        decide: &'a Arc<D>,
        crowd: Crowd,
        trip: Duration,
    ) -> Case<'a, Flow> {
        let before = trip * 5 + Duration::from_millis(20);
        Case::new(name, move |time| {
            steady::run(&self.runtime, server, decide, crowd, before, time)
        })
    }

    /// Measures the decisions per second of Tollgate through a line without a delay.
    fn capacity(&self, pace: &Pace) -> f64 {
        let line = delayed(&self.server, Duration::ZERO);
        let (ours, _) = self.contestants(&line.url());
        let crowd = Crowd {
            callers: 256,
            keys: KEYS,
        };
        let case = self.case("tollgate", &self.server, &ours, crowd, Duration::ZERO);
        alternate(pace.load, vec![case])[0].median(Flow::per_second)
    }
}

/// Starts a proxy that delivers each reply later by a round trip.
fn delayed(server: &Server, round_trip: Duration) -> Proxy {
    let proxy = machine::on_every_core(|| Proxy::start(([127, 0, 0, 1], server.port()).into()));
    if !round_trip.is_zero() {
        proxy.set(Mode::Delay(round_trip));
    }
    proxy
}

fn table(cells: &[Cells]) -> Table {
    let mut table = Table::new(
        "Distance: a server that is milliseconds away",
        "Concurrent callers, 10 000 keys, closed loop. A proxy between client and server adds the round trip, \
         and up to a millisecond more. \
         The plain client is one shared connection that calls the same script once for each check. It has no \
         deadline: a check takes as long as the server takes. Nagle's algorithm is off for all contestants. The \
         default of `redis` has it on, which doubles the latency at a distance. Tollgate has its default deadline of 50 ms, also \
         at 20 ms. *Decisions/s* and the percentiles count decisions of the store alone. *Without the store* is the \
         share of decisions that Tollgate made in process, by its rule for outages. *Server busy* is the processor \
         time of the server, as a share of the time.",
        &[
            "round trip ms",
            "callers",
            "",
            "decisions/s",
            "tollgate to this row",
            "p50 ms",
            "p99 ms",
            "without the store",
            "server busy",
        ],
    );
    for Cells {
        trip,
        callers,
        series,
    } in cells
    {
        for one in series {
            table.row([
                trip.as_millis().to_string(),
                callers.to_string(),
                one.name.clone(),
                figure(one.median(Flow::per_second)),
                figure(series[OURS].ratio(one, Flow::per_second)),
                figure(one.median(|flow| flow.p50_ms)),
                figure(one.median(|flow| flow.p99_ms)),
                format!("{} %", figure(100.0 * one.median(Flow::share_without))),
                format!("{} %", figure(100.0 * one.median(|flow| flow.server_busy))),
            ]);
        }
    }
    table
}
