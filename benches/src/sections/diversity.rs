//! Measures many policies, costs and tenants on one store, and the memory of tenants.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tollgate::{Algorithm, Policy, PolicySet, Quota, RedisStore};

use super::probed;
use crate::{
    keys::KEYS,
    load::{self, Answer, Crowd, Decide, Load},
    machine,
    pace::Pace,
    peers::{Costs, Many, Tenants},
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
};

const CALLERS: usize = 256;

/// The name of the probe of the memory of tenants.
pub(super) const PROBE: &str = "tenants";

/// Units per second for which a unit takes a whole number of microseconds, as with most limits.
const WHOLE: [u64; 12] = [
    1_000, 2_000, 4_000, 5_000, 8_000, 10_000, 20_000, 40_000, 50_000, 100_000, 500_000, 1_000_000,
];

/// The burst of a limit that is never used up.
const BURST: u64 = 500_000_000;

/// The policy of all tenants.
const TENANT: Policy = Policy::token_bucket("tenants", Quota::per_second(1_000));

pub(crate) fn run(pace: &Pace) -> Findings {
    let bench = Bench {
        runtime: load::runtime(),
        server: Server::start(),
    };
    let mut findings = Findings::default();
    for table in [policies, costs, tenants] {
        let table = table(&bench, pace, &mut findings);
        findings.tables.push(table);
        bench.server.flush();
    }
    findings
}

/// Returns a set with one token bucket. Each number has a quota of its own, which is never used up.
fn set(name: &str, number: usize) -> PolicySet {
    Policy::try_new(name, Algorithm::TokenBucket, quota(number))
        .expect("the quota is in range")
        .into()
}

/// Returns the set of a tenant. All tenants have one policy, with quotas of their own.
fn tenant(number: usize) -> PolicySet {
    TENANT
        .with_quota(quota(number))
        .expect("the quota is in range")
        .into()
}

fn quota(number: usize) -> Quota {
    Quota::per_second(WHOLE[number % WHOLE.len()]).with_burst(BURST + number as u64)
}

fn policies(bench: &Bench, pace: &Pace, findings: &mut Findings) -> Table {
    let counts: &[usize] = if pace.is_quick {
        &[1, 100]
    } else {
        &[1, 10, 100, 1_000]
    };
    let case = |&count: &usize| {
        let sets: Vec<_> = (0..count)
            .map(|at| set(&format!("policy-{at:04}"), at))
            .collect();
        let many = Many::strict(&bench.store(), &sets, KEYS, Costs::one());
        bench.case(count.to_string(), many, KEYS)
    };
    let series = alternate(pace.load, counts.iter().map(case).collect());
    for (one, count) in series
        .iter()
        .zip(counts)
        .filter(|(_, count)| **count >= 100)
    {
        let measure = format!("{count} policies, decisions/s, to one policy");
        let ratio = one.ratio(&series[0], Load::per_second);
        findings.goal(measure, Target::AtLeast(0.8), ratio, " ×");
    }
    let about = "Policies with names and quotas of their own, one limiter each. All are token buckets on one store.";
    table("Diversity: policies", about, "policies", &series)
}

fn costs(bench: &Bench, pace: &Pace, findings: &mut Findings) -> Table {
    let counts: &[u64] = if pace.is_quick {
        &[1, 1_000]
    } else {
        &[1, 10, 1_000]
    };
    let case = |&most: &u64| {
        let costs = Costs::up_to(most);
        let many = Many::strict(&bench.store(), &[set("costs", 11)], KEYS, costs);
        bench.case(most.to_string(), many, KEYS)
    };
    let series = alternate(pace.load, counts.iter().map(case).collect());
    let ratio = series[counts.len() - 1].ratio(&series[0], Load::per_second);
    let measure = "1000 different costs, decisions/s, to one cost";
    findings.goal(measure, Target::AtLeast(0.85), ratio, " ×");
    let about = "One policy. The cost of each request is drawn from so many.";
    table("Diversity: costs", about, "costs", &series)
}

fn tenants(bench: &Bench, pace: &Pace, findings: &mut Findings) -> Table {
    let count = if pace.is_quick { 2_000 } else { 100_000 };
    let case = |name: &str, sets| {
        let tenants = Tenants::new(&bench.store(), sets);
        bench.case(name.to_owned(), tenants, count)
    };
    let cases = vec![
        case("one quota", vec![tenant(0); count]),
        case("quotas of their own", (0..count).map(tenant).collect()),
    ];
    let series = alternate(pace.load, cases);
    let measure = format!("{count} tenants with quotas of their own, decisions/s, to one quota");
    let ratio = series[1].ratio(&series[0], Load::per_second);
    findings.goal(measure, Target::AtLeast(0.7), ratio, " ×");
    let [bytes, used, ..] = probed(&[PROBE, &count.to_string()]);
    findings.goal(
        format!("{count} tenants, bytes per tenant in process"),
        Target::AtMost(200.0),
        used,
        "",
    );
    let about = format!(
        "{count} tenants with one key each. A tenant is a set with one policy. All sets have the same algorithm, and \
         quotas of their own in the second row. In process, a tenant takes {} bytes, and {} bytes after its first \
         check.",
        figure(bytes),
        figure(used)
    );
    table("Diversity: tenants", &about, "quotas", &series)
}

fn table(title: &str, about: &str, variant: &str, series: &[Series<Load>]) -> Table {
    let about =
        format!("{about} {CALLERS} callers on loopback, closed loop. All requests are admitted.");
    let first = format!("to {variant}: {}", series[0].name);
    let heads = [
        variant,
        "decisions/s",
        &first,
        "client CPU µs",
        "Redis CPU µs",
        "p99 µs",
    ];
    let mut table = Table::new(title, about, &heads);
    for one in series {
        table.row([
            one.name.clone(),
            figure(one.median(Load::per_second)),
            figure(one.ratio(&series[0], Load::per_second)),
            figure(one.median(|it| it.client_us)),
            figure(one.median(|it| it.server_us)),
            figure(one.median(|it| it.p99_us)),
        ]);
    }
    table
}

struct Bench {
    runtime: Runtime,
    server: Server,
}

impl Bench {
    fn store(&self) -> RedisStore {
        self.runtime
            .block_on(RedisStore::connect(self.server.url()))
            .expect("the server is up")
    }

    fn case<'a, D: Decide>(&'a self, name: String, decide: D, keys: usize) -> Case<'a, Load> {
        let decide = Arc::new(decide);
        let crowd = Crowd {
            callers: CALLERS,
            keys,
        };
        Case::new(name, move |time| {
            let load = load::run(&self.runtime, &self.server, &decide, crowd, time);
            assert_eq!(
                load.admitted, load.decisions,
                "all requests are within the limit"
            );
            load
        })
    }
}

/// Measures the bytes of a tenant, and its bytes after its first check, in a process of its own.
pub(super) fn probe(count: &str) -> [f64; 4] {
    machine::stay_on_the_client_core();
    let count: usize = count.parse().expect("a number");
    let bench = Bench {
        runtime: load::runtime(),
        server: Server::start(),
    };
    let store = bench.store();
    // The buffers of the connection and of the callers grow before the measurement.
    let first = Arc::new(Tenants::new(&store, vec![tenant(0); KEYS]));
    bench.runtime.block_on(each(&first, KEYS));

    let before = machine::resident().unwrap_or(0);
    let bytes = || machine::resident().unwrap_or(0).saturating_sub(before) as f64 / count as f64;
    let sets: Vec<PolicySet> = (0..count).map(tenant).collect();
    let created = bytes();
    // The keys belong to the requests, not to the tenants.
    let tenants = Arc::new(Tenants::new(&store, sets));
    let with_keys = bytes();
    bench.runtime.block_on(each(&tenants, count));
    [created, created + bytes() - with_keys, f64::NAN, f64::NAN]
}

/// Makes a decision for each key, 256 at a time.
async fn each<D: Decide>(decide: &Arc<D>, keys: usize) {
    let call = |caller: usize| {
        let decide = Arc::clone(decide);
        tokio::spawn(async move {
            for key in (caller..keys).step_by(CALLERS) {
                let answer = decide.decide(key).await;
                assert_ne!(answer, Answer::Denied, "all requests are within the limit");
            }
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(call).collect();
    for caller in callers {
        caller.await.expect("a caller ends without a panic");
    }
}
