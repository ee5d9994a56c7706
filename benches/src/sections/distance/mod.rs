//! Measures concurrent callers of a server that is milliseconds away.

mod goals;

use std::{sync::Arc, time::Duration};

use tokio::runtime::Runtime;
use tollgate::{Policy, PolicySet, Quota, RedisStore};
use tollgate_tests::Proxy;

use crate::{
    keys::KEYS,
    line::Line,
    load::{Crowd, Decide},
    pace::{Pace, Rounds},
    peers::{Cell, Costs, Many, Naive, PLENTY_RATE},
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

/// Sets the position of Tollgate in a round, and that of the naive client.
const OURS: usize = 0;
const NAIVE: usize = 1;

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
    let (lines, capacity) = bench.lines(pace);
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
    findings.tables.extend([table(&cells), lines]);
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
        let line = Line::start(self.server.port(), trip);
        let cell_line = self
            .cell
            .as_ref()
            .map(|server| Line::start(server.port(), trip));
        let (ours, naive) = self.contestants(&line.url());
        let cell = self
            .cell
            .as_ref()
            .zip(cell_line.as_ref())
            .map(|(server, line)| {
                let url = line.url();
                let cell = Cell::on(
                    Arc::clone(server),
                    &url,
                    vec![PLENTY_RATE],
                    KEYS,
                    Costs::one(),
                );
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
                self.case("naive client", &self.server, &naive, crowd, trip),
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

    fn contestants(&self, url: &str) -> (Arc<Many>, Arc<Naive>) {
        let sets = [PolicySet::from(PLENTY)];
        self.runtime.block_on(async {
            let store = RedisStore::connect(url).await.expect("the server is up");
            let ours = Many::usual(&store, &sets, KEYS, Costs::one());
            let naive = Naive::new(&self.server, url, &sets, KEYS, Costs::one()).await;
            (Arc::new(ours), Arc::new(naive))
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

    /// Compares the delay line and the fault proxy, both without a delay, with a direct connection.
    /// Returns the decisions per second of Tollgate through the line too.
    fn lines(&self, pace: &Pace) -> (Table, f64) {
        let line = Line::start(self.server.port(), Duration::ZERO);
        let proxy = Proxy::start(([127, 0, 0, 1], self.server.port()).into());
        let ways = [
            ("direct", self.server.url()),
            ("delay line", line.url()),
            ("fault proxy", proxy.url()),
        ];
        let contestants = ways.map(|(name, url)| (name, self.contestants(&url)));
        let crowd = Crowd {
            callers: 256,
            keys: KEYS,
        };
        let mut cases = Vec::new();
        for (name, (ours, naive)) in &contestants {
            cases.push(self.case(
                &format!("tollgate, {name}"),
                &self.server,
                ours,
                crowd,
                Duration::ZERO,
            ));
            cases.push(self.case(
                &format!("naive client, {name}"),
                &self.server,
                naive,
                crowd,
                Duration::ZERO,
            ));
        }
        let series = alternate(pace.load, cases);
        let mut table = Table::new(
            "Distance: what the line itself costs",
            "256 callers, and no delay. The line is one thread for each connection, which may run on any core. On two \
             cores it takes time from the client and from the server. The table shows how much: *to direct* compares \
             with the same contestant without a line. The tables above use the delay line. The fault proxy of the tests \
             is listed for comparison.",
            &["", "decisions/s", "to direct", "p50 ms", "p99 ms"],
        );
        for (at, one) in series.iter().enumerate() {
            table.row([
                one.name.clone(),
                figure(one.median(Flow::per_second)),
                figure(one.ratio(&series[at % 2], Flow::per_second)),
                figure(one.median(|flow| flow.p50_ms)),
                figure(one.median(|flow| flow.p99_ms)),
            ]);
        }
        (table, series[2].median(Flow::per_second))
    }
}

fn table(cells: &[Cells]) -> Table {
    let mut table = Table::new(
        "Distance: a server that is milliseconds away",
        "Concurrent callers, 10 000 keys, closed loop. A delay line between client and server adds the round trip. \
         *Naive* is one shared connection that calls the same script once for each check, with numbers in decimal. It \
         has no deadline: a check takes as long as the server takes. Nagle's algorithm is off for all contestants. The \
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
