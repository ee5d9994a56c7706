//! Measures what happens when more requests arrive than the server can decide.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Runtime;
use tollgate::{Algorithm, ErrorKind, Limiter, Outage, Policy, PolicySet, Quota, RedisStore};

use crate::{
    keys::KEYS,
    load::{self, Answer, Crowd, Offer, Sample, percentile},
    pace::{Pace, Rounds},
    peers::Ours,
    report::{Findings, Table, Target, figure},
    rounds::{Case, alternate},
    server::Server,
};

/// The time in which an answer is useful: the default deadline of a limiter.
const USEFUL: Duration = Duration::from_millis(50);

/// The callers that measure the capacity, in a closed loop. They are few enough to be answered in
/// time.
const CALLERS: usize = 64;

/// The least capacity that is offered, in decisions per second, so that a machine that stands still
/// for a moment does not end the run.
const LEAST: f64 = 500.0;

/// The offered load, as multiples of the capacity.
struct Burst {
    name: &'static str,
    /// For keys that share it equally, and their number.
    calm: f64,
    keys: usize,
    /// For one more key.
    flood: f64,
    /// The costs of requests are drawn from so many.
    costs: u64,
}

const BURSTS: [Burst; 6] = [
    burst("0.5 ×", 0.5, KEYS - 1),
    burst("1 ×", 1.0, KEYS - 1),
    burst("2 ×", 2.0, KEYS - 1),
    burst("5 ×", 5.0, KEYS - 1),
    flood("a flood of one key", 1),
    flood("a flood of one key, 1000 costs", 1_000),
];

const fn burst(name: &'static str, calm: f64, keys: usize) -> Burst {
    Burst {
        name,
        calm,
        keys,
        flood: 0.0,
        costs: 1,
    }
}

const fn flood(name: &'static str, costs: u64) -> Burst {
    Burst {
        flood: 4.5,
        costs,
        ..burst(name, 0.5, 1_000)
    }
}

/// Holds the figures of one turn.
struct Turn {
    offered: f64,
    good_to_capacity: f64,
    /// The time until the answers that are no decision of the store in time.
    others_p50_ms: f64,
    others_p99_ms: f64,
    /// The share of these that was refused at once.
    at_once: f64,
    /// The share of the calm keys that the store decided in time.
    calm_in_time: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let runtime = load::runtime();
    let server = Server::start();
    let cases = BURSTS.iter().map(|burst| {
        let store = runtime.block_on(RedisStore::connect(server.url()));
        let limiter = Limiter::builder(store.expect("the server is up"))
            .policies(eight())
            .on_outage(Outage::Open)
            .deadline(USEFUL);
        let ours = Arc::new(Ours::of(limiter.build()).with_costs(burst.costs));
        let runtime = &runtime;
        Case::new(burst.name, move |time| turn(runtime, &ours, burst, time))
    });
    // A burst is longer than a turn of other sections, so that a queue can form.
    let rounds = Rounds {
        count: pace.load.count,
        turn: pace.load.turn * 2,
    };
    let series = alternate(rounds, cases.collect());

    let mut findings = Findings::default();
    for one in &series[1..4] {
        let good = one.median(|turn| turn.good_to_capacity);
        let measure = format!("{} the capacity offered, decided in time", one.name);
        findings.goal(measure, Target::AtLeast(0.9), good, " ×");
    }
    let late = series[3].median(|turn| turn.others_p99_ms);
    let measure = "5 × the capacity, time until the answer of the others, p99";
    findings.goal(measure, Target::AtMost(10.0), late, " ms");
    for one in &series[4..] {
        let calm = 100.0 * one.median(|turn| turn.calm_in_time);
        let measure = format!("{}, calm keys decided in time", one.name);
        findings.goal(measure, Target::AtLeast(99.0), calm, " %");
    }
    let about = format!(
        "Open loop: requests arrive at random times, whether or not earlier ones have their answer. Each is a task. The \
         load is a multiple of the capacity, which is measured in the same turn with {CALLERS} callers in a closed loop. \
         A set of eight policies makes the server the bottleneck, so that the client can offer five times as much. \
         *Good* is a decision of the store within {} ms, the deadline. Requests that the store does not decide are \
         admitted (`Outage::Open`), because a decision in process over eight policies would take time from the load. \
         *Others* are the requests without a good decision; *at once* is their share with the reason `overload`. In a \
         flood, half of the capacity is offered over 1000 calm keys, and 4.5 × the capacity over one more key, whose limit \
         is never used up.",
        USEFUL.as_millis()
    );
    let heads = [
        "load",
        "offered/s",
        "good, to the capacity",
        "others, p50 ms",
        "others, p99 ms",
        "others, at once",
        "calm keys in time",
    ];
    let mut table = Table::new("Overload", about, &heads);
    for one in &series {
        let percent = |share| format!("{} %", figure(100.0 * share));
        table.row([
            one.name.clone(),
            figure(one.median(|turn| turn.offered)),
            figure(one.median(|turn| turn.good_to_capacity)),
            figure(one.median(|turn| turn.others_p50_ms)),
            figure(one.median(|turn| turn.others_p99_ms)),
            percent(one.median(|turn| turn.at_once)),
            percent(one.median(|turn| turn.calm_in_time)),
        ]);
    }
    findings.tables.push(table);
    findings
}

/// Returns a set of eight policies, the most that a set may have. It makes the server the
/// bottleneck.
fn eight() -> PolicySet {
    let policy = |number: usize| {
        let algorithm = Algorithm::SlidingBuckets { buckets: 10 };
        let quota = Quota::per_minute(1_000_000_000);
        Policy::try_new(format!("policy-{number}"), algorithm, quota)
    };
    let policies = (0..8).map(|number| policy(number).expect("the quota is in range"));
    PolicySet::try_new(policies).expect("eight names that differ")
}

/// Measures the capacity, and offers multiples of it.
fn turn(runtime: &Runtime, ours: &Arc<Ours>, burst: &Burst, time: Duration) -> Turn {
    let crowd = Crowd::near(CALLERS, burst.keys);
    let measured = load::run(runtime, None, ours, crowd, time / 2);
    let capacity = measured.per_second().max(LEAST);
    let multiple = burst.calm + burst.flood;
    let offer = Offer {
        per_second: multiple * capacity,
        time,
        keys: burst.keys + 1,
        flood: burst.flood / multiple,
    };
    let samples = load::offer(runtime, ours, &offer);

    let is_good = |sample: &&Sample| {
        !matches!(sample.answer, Answer::WithoutStore(_)) && sample.took <= USEFUL
    };
    let (good, others): (Vec<&Sample>, Vec<&Sample>) = samples.iter().partition(is_good);
    let per_second = |count: usize| count as f64 / time.as_secs_f64();
    let calm = |samples: &[&Sample]| samples.iter().filter(|it| it.key != 0).count() as f64;
    let calm_good = calm(&good);
    let at_once = Answer::WithoutStore(ErrorKind::Overloaded);
    let at_once = others.iter().filter(|it| it.answer == at_once).count() as f64;
    let mut times_us: Vec<u32> = others.iter().map(|it| it.took.as_micros() as u32).collect();
    times_us.sort_unstable();
    Turn {
        offered: per_second(samples.len()),
        good_to_capacity: per_second(good.len()) / capacity,
        others_p50_ms: percentile(&times_us, 0.5) / 1e3,
        others_p99_ms: percentile(&times_us, 0.99) / 1e3,
        at_once: at_once / others.len() as f64,
        calm_in_time: calm_good / (calm_good + calm(&others)),
    }
}
