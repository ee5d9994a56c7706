//! Measures many policies, costs, tenants and shapes on one store.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate::{Algorithm, Policy, PolicySet, Quota, RedisStore};

use super::tenants;
use crate::{
    keys::KEYS,
    load::{self, Crowd, Decide, Load},
    pace::Pace,
    peers::{Cell, Costs, Many, Naive, PLENTY_RATE, Rate, Tenants},
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

const CALLERS: usize = 256;

/// Describes a load. The number of the key selects the set of policies.
struct Variant {
    name: String,
    sets: Vec<PolicySet>,
    most_cost: u64,
    keys: usize,
    /// Tells whether the checks have a set of policies each, and no limiter.
    is_by_tenant: bool,
}

impl Variant {
    fn new(name: impl Into<String>, sets: Vec<PolicySet>) -> Self {
        Self {
            name: name.into(),
            sets,
            most_cost: 1,
            keys: KEYS,
            is_by_tenant: false,
        }
    }
}

/// Holds the turns of all contestants for one load.
struct Row {
    name: String,
    series: Vec<Series<Load>>,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let bench = Bench {
        runtime: load::runtime(),
        server: Server::start(),
        cell: Cell::start(),
    };
    let mut findings = Findings::default();
    for table in [policies, costs, tenants, shapes] {
        let table = table(&bench, pace, &mut findings);
        findings.tables.push(table);
        bench.server.flush();
    }
    findings.tables.push(tenants::many_limiters(pace));
    findings
}

fn policies(bench: &Bench, pace: &Pace, findings: &mut Findings) -> Table {
    let counts: &[usize] = if pace.is_quick {
        &[1, 100]
    } else {
        &[1, 10, 100, 1_000]
    };
    let sets = |count: usize| {
        (0..count)
            .map(|at| tenants::set(&format!("policy-{at:04}"), at))
            .collect()
    };
    let variants = counts
        .iter()
        .map(|&count| Variant::new(count.to_string(), sets(count)));
    let rows = bench.compare(pace, variants.collect());
    for (row, count) in rows.iter().zip(counts).filter(|(_, count)| **count >= 100) {
        let measure = format!("{count} policies, decisions/s, to one policy");
        findings.goal(measure, Target::AtLeast(0.8), to_first(row, &rows), " ×");
    }
    let about = "Policies with names and quotas of their own, one limiter each. All are token buckets on one store.";
    table("Diversity: policies", about, "policies", &rows)
}

fn costs(bench: &Bench, pace: &Pace, findings: &mut Findings) -> Table {
    let counts: &[u64] = if pace.is_quick {
        &[1, 1_000]
    } else {
        &[1, 10, 1_000]
    };
    let variant = |&most_cost: &u64| Variant {
        most_cost,
        ..Variant::new(most_cost.to_string(), vec![tenants::set("costs", 11)])
    };
    let rows = bench.compare(pace, counts.iter().map(variant).collect());
    if let Some(row) = rows.last() {
        let measure = "1000 different costs, decisions/s, to one cost";
        findings.goal(measure, Target::AtLeast(0.85), to_first(row, &rows), " ×");
    }
    table(
        "Diversity: costs",
        "One policy. The cost of each request is drawn from so many.",
        "costs",
        &rows,
    )
}

fn tenants(bench: &Bench, pace: &Pace, findings: &mut Findings) -> Table {
    let count = tenants::count(pace);
    let by_tenant = |name: &str, sets: Vec<PolicySet>| Variant {
        keys: count,
        is_by_tenant: true,
        ..Variant::new(name, sets)
    };
    let one = tenants::tenant(0);
    let own: Vec<PolicySet> = (0..count).map(tenants::tenant).collect();
    let variants = vec![
        by_tenant("one quota", vec![one; count]),
        by_tenant("quotas of their own", own),
    ];
    let rows = bench.compare(pace, variants);
    let measure = format!("{count} tenants with quotas of their own, decisions/s, to one quota");
    findings.goal(
        measure,
        Target::AtLeast(0.7),
        to_first(&rows[1], &rows),
        " ×",
    );
    let [bytes, used, limiters, _] = tenants::memory(count);
    findings.goal(
        format!("{count} tenants, bytes per tenant in process"),
        Target::AtMost(200.0),
        used,
        "",
    );
    let about = format!(
        "{count} tenants with one key each. A tenant is a set with one policy. All sets have the same algorithm, and \
         quotas of their own in the second half of the table. In process, a tenant takes {} bytes, and {} bytes after \
         its first check. As a limiter of its own it takes {} bytes.",
        figure(bytes),
        figure(used),
        figure(limiters)
    );
    table("Diversity: tenants", &about, "quotas", &rows)
}

fn shapes(bench: &Bench, pace: &Pace, _: &mut Findings) -> Table {
    let many = Quota::per_second(1_000_000);
    let policy = |name: &str, algorithm| {
        Policy::try_new(name, algorithm, many).expect("the quota is in range")
    };
    let bucket = || policy("bucket", Algorithm::TokenBucket);
    let shapes = [
        ("bucket", vec![bucket()]),
        ("window", vec![policy("window", Algorithm::FixedWindow)]),
        (
            "bucket and sliding window",
            vec![bucket(), policy("sliding", Algorithm::SlidingWindow)],
        ),
    ];
    let shapes = shapes.map(|(name, policies)| {
        (
            name,
            PolicySet::try_new(policies).expect("the names differ"),
        )
    });
    let mixed = shapes.iter().map(|(_, set)| set.clone()).collect();
    let mut variants: Vec<Variant> = shapes
        .map(|(name, set)| Variant::new(name, vec![set]))
        .into();
    variants.push(Variant::new("all three mixed", mixed));
    let rows = bench.compare(pace, variants);
    let about = "Sets with different lists of algorithms, alone and mixed. redis-cell has one algorithm, and is called \
                 once, also for the set of two policies.";
    table("Diversity: shapes", about, "sets", &rows)
}

/// Returns the ratio of Tollgate in a row to Tollgate in the first one.
fn to_first(row: &Row, rows: &[Row]) -> f64 {
    row.series[0].ratio(&rows[0].series[0], Load::per_second)
}

fn table(title: &str, about: &str, variant: &str, rows: &[Row]) -> Table {
    let about = format!(
        "{about} {CALLERS} callers on loopback, closed loop. All requests are admitted. *Naive* is one shared connection \
         that calls the same script once for each check, with numbers in decimal."
    );
    let first = format!("to {variant}: {}", rows[0].name);
    let heads = [
        variant,
        "",
        "decisions/s",
        "tollgate to this row",
        &first,
        "client CPU µs",
        "Redis CPU µs",
        "p99 µs",
    ];
    let mut table = Table::new(title, about, &heads);
    for Row { name, series } in rows {
        for (at, one) in series.iter().enumerate() {
            table.row([
                name.clone(),
                one.name.clone(),
                figure(one.median(Load::per_second)),
                figure(series[0].ratio(one, Load::per_second)),
                figure(one.ratio(&rows[0].series[at], Load::per_second)),
                figure(one.median(|it| it.client_us)),
                figure(one.median(|it| it.server_us)),
                figure(one.median(|it| it.p99_us)),
            ]);
        }
    }
    table
}

struct Bench {
    runtime: Runtime,
    server: Server,
    cell: Option<Arc<Server>>,
}

impl Bench {
    /// Measures all contestants under all loads, in turns.
    fn compare(&self, pace: &Pace, variants: Vec<Variant>) -> Vec<Row> {
        let store = self
            .runtime
            .block_on(RedisStore::connect(self.server.url()))
            .expect("the server is up");
        let mut names = Vec::new();
        let mut cases = Vec::new();
        let mut contestants = 0;
        for variant in variants {
            let crowd = Crowd {
                callers: CALLERS,
                keys: variant.keys,
            };
            let (naive, cell) = self.runtime.block_on(self.peers(&variant));
            let before = cases.len();
            cases.push(if variant.is_by_tenant {
                self.case("tollgate", Tenants::new(&store, variant.sets), crowd)
            } else {
                let costs = Costs::up_to(variant.most_cost);
                self.case(
                    "tollgate",
                    Many::strict(&store, &variant.sets, variant.keys, costs),
                    crowd,
                )
            });
            cases.push(self.case("naive client", naive, crowd));
            cases.extend(cell.map(|(server, cell)| {
                self.case_on(server, "redis-cell, shared connection", cell, crowd)
            }));
            contestants = cases.len() - before;
            names.push(variant.name);
        }
        let mut series = alternate(pace.load, cases).into_iter();
        names
            .into_iter()
            .map(|name| Row {
                name,
                series: series.by_ref().take(contestants).collect(),
            })
            .collect()
    }

    async fn peers(&self, variant: &Variant) -> (Naive, Option<(&Server, Cell)>) {
        let Variant {
            sets,
            keys,
            most_cost,
            ..
        } = variant;
        let costs = || Costs::up_to(*most_cost);
        let naive = Naive::new(&self.server, &self.server.url(), sets, *keys, costs()).await;
        let Some(server) = &self.cell else {
            return (naive, None);
        };
        let rate = |set: &PolicySet| {
            let quota = set.iter().next().map(Policy::quota);
            quota.map_or(PLENTY_RATE, |quota| Rate {
                burst: quota.burst(),
                per_second: quota.amount(),
            })
        };
        let rates = sets.iter().map(rate).collect();
        let cell = Cell::on(Arc::clone(server), &server.url(), rates, *keys, costs()).await;
        (naive, Some((server, cell)))
    }

    fn case<'a, D: Decide>(&'a self, name: &str, decide: D, crowd: Crowd) -> Case<'a, Load> {
        self.case_on(&self.server, name, decide, crowd)
    }

    fn case_on<'a, D: Decide>(
        &'a self,
        server: &'a Server,
        name: &str,
        decide: D,
        crowd: Crowd,
    ) -> Case<'a, Load> {
        let decide = Arc::new(decide);
        Case::new(name, move |time| {
            let load = load::run(&self.runtime, server, &decide, crowd, time);
            assert_eq!(
                load.admitted, load.decisions,
                "all requests are within the limit"
            );
            load
        })
    }
}
