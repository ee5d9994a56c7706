//! Measures what happens when more requests arrive than the server can decide.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::runtime::Runtime;
use tollgate::{Algorithm, Outage, Policy, PolicySet, Quota, RedisStore};

use crate::{
    keys::KEYS,
    load::{self, Crowd, Decide},
    open::{self, Offer, Results, USEFUL},
    pace::{Pace, Rounds},
    peers::{Costs, Many},
    report::{Findings, Table, Target, figure},
    rounds::{Case, Series, alternate},
    server::Server,
    steady,
};

/// The offered load, as a multiple of the capacity.
const FACTORS: [f64; 4] = [0.5, 1.0, 2.0, 5.0];

/// The load after a burst, as a multiple of the capacity.
const CALM: f64 = 0.5;

/// The load of the calm keys beside a flood, as a multiple of the capacity, and their number.
const BESIDE: f64 = 0.5;
const CALM_KEYS: usize = 1_000;

/// The load of the flooded key, as a multiple of the capacity.
const FLOOD: f64 = 4.5;

/// The callers that measure the capacity, in a closed loop. They are few enough to be answered in
/// time.
const CALLERS: usize = 64;

/// The least capacity that is offered, in decisions per second.
const LEAST: f64 = 500.0;

/// Holds the figures of one turn: the capacity, and the results for each load.
struct Turn {
    capacity: f64,
    /// One for each of the [`FACTORS`], or one for a flood.
    results: Vec<Figures>,
}

/// Holds the figures for one load. The samples themselves are not kept.
struct Figures {
    offered: f64,
    goodput: f64,
    store_p99_ms: f64,
    others_p50_ms: f64,
    others_p99_ms: f64,
    reasons: BTreeMap<&'static str, usize>,
    recovery_ms: f64,
    calm_good: f64,
    flood_good: f64,
    client_busy: f64,
}

pub(crate) fn run(pace: &Pace) -> Findings {
    let bench = Bench {
        runtime: load::runtime(),
        server: Server::start(),
    };
    let ours = bench.ours(KEYS, Costs::one());
    // A burst is longer than a turn of other sections, so that a queue can form.
    let rounds = Rounds {
        count: pace.load.count,
        turn: pace.load.turn * 2,
    };
    let bursts = vec![Case::new("tollgate", |time| bench.bursts(&ours, time))];
    let bursts = alternate(rounds, bursts).remove(0);
    bench.server.flush();
    let (alike, differing) = (
        bench.ours(CALM_KEYS + 1, Costs::one()),
        bench.ours(CALM_KEYS + 1, Costs::up_to(1_000)),
    );
    let floods = alternate(
        rounds,
        vec![
            Case::new("one cost", |time| bench.flood(&alike, time)),
            Case::new("1000 different costs", |time| bench.flood(&differing, time)),
        ],
    );
    let mut findings = Findings::default();
    goals(&mut findings, &bursts, &floods);
    findings
        .tables
        .extend([bursts_table(&bursts), floods_table(&floods)]);
    findings
}

/// Returns a set of eight policies, the most that a set may have. It makes the server the
/// bottleneck.
fn eight() -> PolicySet {
    let policy = |number: usize| {
        let algorithm = Algorithm::SlidingBuckets { buckets: 10 };
        Policy::try_new(
            format!("policy-{number}"),
            algorithm,
            Quota::per_minute(1_000_000_000),
        )
    };
    let policies = (0..8).map(|number| policy(number).expect("the quota is in range"));
    PolicySet::try_new(policies).expect("eight names that differ")
}

struct Bench {
    runtime: Runtime,
    server: Server,
}

impl Bench {
    fn ours(&self, keys: usize, costs: Costs) -> Arc<Many> {
        let store = self
            .runtime
            .block_on(RedisStore::connect(self.server.url()))
            .expect("the server is up");
        Arc::new(Many::with(
            &store,
            &[eight()],
            keys,
            costs,
            Outage::Open,
            USEFUL,
        ))
    }

    /// Measures the decisions per second in a closed loop.
    ///
    /// Returns at least [`LEAST`], so that a machine that stands still for a moment does not end
    /// the run.
    fn capacity<D: Decide>(&self, decide: &Arc<D>, keys: usize, time: Duration) -> f64 {
        let crowd = Crowd {
            callers: CALLERS,
            keys,
        };
        let (before, time) = (
            Duration::from_millis(50),
            time.max(Duration::from_millis(200)),
        );
        steady::run(&self.runtime, &self.server, decide, crowd, before, time)
            .per_second()
            .max(LEAST)
    }

    /// Measures the capacity, and offers multiples of it.
    fn bursts<D: Decide>(&self, decide: &Arc<D>, time: Duration) -> Turn {
        let capacity = self.capacity(decide, KEYS, time / 2);
        let offer = |factor: f64| Offer {
            burst: factor * capacity,
            after: CALM * capacity,
            burst_time: time,
            after_time: time / 2,
            keys: KEYS,
            flood: 0.0,
        };
        let figures = |factor| Figures::new(&open::run(&self.runtime, decide, &offer(factor)));
        Turn {
            capacity,
            results: FACTORS.into_iter().map(figures).collect(),
        }
    }

    /// Measures the capacity, and floods one key beside a calm load of other keys.
    fn flood<D: Decide>(&self, decide: &Arc<D>, time: Duration) -> Turn {
        let capacity = self.capacity(decide, CALM_KEYS, time / 2);
        let offer = Offer {
            burst: (BESIDE + FLOOD) * capacity,
            after: CALM * capacity,
            burst_time: time,
            after_time: time / 2,
            keys: CALM_KEYS + 1,
            flood: FLOOD / (BESIDE + FLOOD),
        };
        Turn {
            capacity,
            results: vec![Figures::new(&open::run(&self.runtime, decide, &offer))],
        }
    }
}

impl Figures {
    fn new(results: &Results) -> Self {
        Self {
            offered: results.offered(),
            goodput: results.goodput(),
            store_p99_ms: results.store_ms(0.99),
            others_p50_ms: results.others_ms(0.5),
            others_p99_ms: results.others_ms(0.99),
            reasons: results.reasons(),
            recovery_ms: results.recovery().as_secs_f64() * 1e3,
            calm_good: results.share_good(false),
            flood_good: results.share_good(true),
            client_busy: results.client_busy,
        }
    }

    /// Returns the share of the requests without a decision of the store in time that have this
    /// reason.
    fn share(&self, reason: &str) -> f64 {
        let all: usize = self.reasons.values().sum();
        self.reasons.get(reason).copied().unwrap_or(0) as f64 / all.max(1) as f64
    }
}

fn goals(findings: &mut Findings, ours: &Series<Turn>, floods: &[Series<Turn>]) {
    for (at, factor) in FACTORS
        .iter()
        .enumerate()
        .filter(|(_, factor)| **factor >= 1.0)
    {
        let goodput = ours.median(|turn| turn.results[at].goodput / turn.capacity);
        let measure = format!(
            "{factor} × the capacity offered, decisions of the store in time, to the capacity"
        );
        findings.goal(measure, Target::AtLeast(0.9), goodput, " ×");
    }
    let most = FACTORS.len() - 1;
    let overload = 100.0 * ours.median(|turn| turn.results[most].share("overload"));
    findings.goal(
        "5 × the capacity, others with the reason `overload`",
        Target::AtLeast(99.0),
        overload,
        " %",
    );
    let breaker = 100.0 * ours.median(|turn| turn.results[most].share("breaker"));
    findings.goal(
        "5 × the capacity, others with the reason `breaker`",
        Target::AtMost(0.0),
        breaker,
        " %",
    );
    let early = ours.median(|turn| turn.results[most].others_p99_ms);
    findings.goal(
        "5 × the capacity, time until the answer of the others, p99",
        Target::AtMost(10.0),
        early,
        " ms",
    );
    let recovery = ours.median(|turn| turn.results[most].recovery_ms);
    findings.goal(
        "recovery after 5 × the capacity",
        Target::AtMost(100.0),
        recovery,
        " ms",
    );
    for flood in floods {
        let calm = 100.0 * flood.median(|turn| turn.results[0].calm_good);
        let measure = format!(
            "a flood of one key, {}, calm keys decided by the store in time",
            flood.name
        );
        findings.goal(measure, Target::AtLeast(99.0), calm, " %");
    }
}

fn bursts_table(bursts: &Series<Turn>) -> Table {
    let mut table = Table::new(
        "Overload",
        format!(
            "Open loop: requests arrive at random times, whether or not earlier ones have their answer. Each is a task. \
             The load is a multiple of the capacity, which is measured in the same turn with {CALLERS} callers in a closed \
             loop ({} decisions/s). A set of eight policies makes the server the bottleneck, so that \
             the client can offer five times as much. *Good* is a decision of the store within {} ms, the deadline. \
             Requests that the store does not decide are admitted (`Outage::Open`), because a decision in process over eight policies would \
             take time from the load. *Others* are the requests without a good decision. *Recovery* is the time from the \
             end of the burst to the last one of them, while half of the capacity is offered. *Client busy* is the share of its core.",
            figure(bursts.median(|turn| turn.capacity)),
            USEFUL.as_millis()
        ),
        &[
            "load",
            "offered/s",
            "good/s",
            "good, to the capacity",
            "p99 of the store ms",
            "others, p50 ms",
            "others, p99 ms",
            "reasons of the others",
            "recovery ms",
            "client busy",
        ],
    );
    for (at, factor) in FACTORS.iter().enumerate() {
        let of =
            |value: fn(&Figures) -> f64| figure(bursts.median(|turn| value(&turn.results[at])));
        table.row([
            format!("{factor} ×"),
            of(|it| it.offered),
            of(|it| it.goodput),
            figure(bursts.median(|turn| turn.results[at].goodput / turn.capacity)),
            of(|it| it.store_p99_ms),
            of(|it| it.others_p50_ms),
            of(|it| it.others_p99_ms),
            reasons(bursts, at),
            of(|it| it.recovery_ms),
            format!(
                "{} %",
                figure(100.0 * bursts.median(|turn| turn.results[at].client_busy))
            ),
        ]);
    }
    table
}

fn floods_table(floods: &[Series<Turn>]) -> Table {
    let mut table = Table::new(
        "Overload: a flood of one key",
        format!(
            "Half of the capacity is offered over {CALM_KEYS} calm keys, and {FLOOD} × the capacity over one more key. \
             The limit of that key is never used up, so each of its requests needs a decision. Checks of one key with one \
             cost share their work at the server; with different costs they share less. *In time* counts decisions of \
             the store within {} ms.",
            USEFUL.as_millis()
        ),
        &[
            "flood",
            "offered/s",
            "calm keys in time",
            "flooded key in time",
            "reasons of the others",
            "recovery ms",
        ],
    );
    for one in floods {
        let share = |of: fn(&Figures) -> f64| {
            format!(
                "{} %",
                figure(100.0 * one.median(|turn| of(&turn.results[0])))
            )
        };
        table.row([
            one.name.clone(),
            figure(one.median(|turn| turn.results[0].offered)),
            share(|it| it.calm_good),
            share(|it| it.flood_good),
            reasons(one, 0),
            figure(one.median(|turn| turn.results[0].recovery_ms)),
        ]);
    }
    table
}

/// Lists the reasons with their shares, the most frequent one first.
fn reasons(series: &Series<Turn>, at: usize) -> String {
    let names = series.collect(|turn| turn.results[at].reasons.keys().copied().collect::<Vec<_>>());
    let mut names: Vec<&str> = names.into_iter().flatten().collect();
    names.sort_unstable();
    names.dedup();
    let share = |name: &'static str| {
        (
            name,
            100.0 * series.median(|turn| turn.results[at].share(name)),
        )
    };
    let mut shares: Vec<(&str, f64)> = names.into_iter().map(share).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let texts: Vec<String> = shares
        .iter()
        .map(|(name, share)| format!("`{name}` {} %", figure(*share)))
        .collect();
    if texts.is_empty() {
        "–".to_owned()
    } else {
        texts.join(", ")
    }
}
