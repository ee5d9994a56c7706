//! Rows: a line whose round trip changes, or that holds answers back for a moment, while the server
//! is healthy.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tollgate::{Key, Limiter, Outage, RedisStore};
use tollgate_tests::{Mode, Proxy, RedisServer};

use crate::{
    findings::Findings,
    load::{LARGE, Load, Sample, decides, quantile},
    pace::Pace,
};

/// The number of tasks that check all the time, each with a pause of 1 ms.
const TASKS: usize = 256;

/// The deadline of a check. The round trips of these rows are below four fifths of it.
const DEADLINE: Duration = Duration::from_millis(100);

/// The time after which a new round trip is known.
const KNOWN: Duration = Duration::from_secs(3);

struct Setup {
    _server: RedisServer,
    proxy: Arc<Proxy>,
    large: Limiter,
}

async fn setup() -> Setup {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::open(proxy.url()).expect("a store");
    let large = Limiter::builder(store)
        .policies(LARGE)
        .on_outage(Outage::local(1))
        .deadline(DEADLINE)
        .build();
    decides(&large, "acme").await;
    Setup {
        _server: server,
        proxy: Arc::new(proxy),
        large,
    }
}

fn keys() -> impl Iterator<Item = Key> {
    (0..1_000_u64).map(Key::from)
}

/// Makes checks while `disturb` changes the line.
async fn checked<F: Future<Output = ()>>(disturb: impl FnOnce(Arc<Proxy>) -> F) -> Vec<Sample> {
    let Setup {
        _server,
        proxy,
        large,
    } = setup().await;
    let load = Load::start(&large, TASKS, keys());
    disturb(Arc::clone(&proxy)).await;
    load.end().await
}

fn late(findings: &mut Findings, most: f64, samples: &[Sample]) {
    let degraded = samples.iter().filter(|it| it.reason.is_some()).count();
    let share = 100.0 * degraded as f64 / samples.len().max(1) as f64;
    findings
        .percent("decided without the store", share)
        .at_most(most);
    let opened = samples
        .iter()
        .filter(|it| it.reason == Some("breaker"))
        .count();
    findings
        .count("of these because the breaker was open", opened as f64)
        .at_most(0.0);
    findings.ms("check time, p99", quantile(samples, 0.99));
}

pub(super) async fn jump(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let length = pace.of(Duration::from_secs(15), Duration::from_secs(6));
    let (near, far) = (Duration::from_millis(1), Duration::from_millis(40));
    let mut phases = Vec::new();
    let phases_of = &mut phases;
    let samples = checked(async move |proxy| {
        for round_trip in [near, far, near] {
            proxy.set(Mode::Delay(round_trip));
            phases_of.push((Instant::now(), round_trip));
            tokio::time::sleep(length).await;
        }
    })
    .await;
    late(&mut findings, 0.0, &samples);
    for ((began, round_trip), name) in
        phases
            .into_iter()
            .zip(["at 1 ms", "at 40 ms", "again at 1 ms"])
    {
        let (from, until) = (began + KNOWN, began + length);
        let decided = samples
            .iter()
            .filter(|it| it.began >= from && it.began + it.took < until)
            .count();
        // Each task makes a check, and then a pause of 1 ms.
        let each = round_trip + Duration::from_millis(2);
        let most = TASKS as f64 * (until - from).as_secs_f64() / each.as_secs_f64();
        let share = 100.0 * decided as f64 / most;
        let asked = format!("decisions {name}, of those that the round trip allows");
        let figure = findings.percent(asked, share);
        if round_trip == far {
            figure.at_least(80.0);
        }
    }
    findings
}

pub(super) async fn bursts(pace: Pace) -> Findings {
    let length = pace.of(Duration::from_secs(15), Duration::from_secs(3));
    held_back(length, Duration::from_millis(5), Duration::from_millis(1)).await
}

pub(super) async fn stalls(pace: Pace) -> Findings {
    let length = pace.of(Duration::from_secs(20), Duration::from_secs(4));
    held_back(
        length,
        Duration::from_millis(30),
        Duration::from_millis(970),
    )
    .await
}

/// Holds all answers back for `hold` and lets them pass for `pass`, in turns.
async fn held_back(length: Duration, hold: Duration, pass: Duration) -> Findings {
    let mut findings = Findings::default();
    let samples = checked(async move |proxy| {
        let began = Instant::now();
        while began.elapsed() < length {
            proxy.set(Mode::Stall);
            tokio::time::sleep(hold).await;
            proxy.set(Mode::Pass);
            tokio::time::sleep(pass).await;
        }
    })
    .await;
    late(&mut findings, 0.0, &samples);
    findings
}
