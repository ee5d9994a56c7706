//! Rows: answers that come after the deadline.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use tollgate::{Limiter, Outage, RedisStore};
use tollgate_tests::{Log, Mode, Proxy, RedisServer};

use crate::{
    findings::{Findings, Target},
    load::{LARGE, Load, Sample, decides, limiter, quantile},
    pace::Pace,
};

/// The number of tasks that check all the time.
const TASKS: usize = 16;

/// The time after which a new round trip is known.
const KNOWN: Duration = Duration::from_secs(1);

struct Setup {
    _server: RedisServer,
    proxy: Proxy,
    large: Limiter,
}

/// Starts a server behind a proxy. No replica is counted, so each call of a script is a check.
async fn setup() -> Setup {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::open(proxy.url()).expect("a store");
    let large = limiter(&store, LARGE, Outage::local(1));
    decides(&large, "acme").await;
    Setup { _server: server, proxy, large }
}

fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Runs a future on a thread of its own, and returns what is logged there.
async fn logged<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) -> String {
    let logging = move || {
        let (log, _guard) = Log::of_this_thread();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(work());
        log.text()
    };
    tokio::task::spawn_blocking(logging).await.expect("a thread")
}

pub(super) async fn far(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let Setup { _server: server, proxy, large } = setup().await;
    let began = Instant::now();
    proxy.set(Mode::Delay(Duration::from_millis(70)));
    let load = Load::start(&large, TASKS, ["acme".into()]);
    tokio::time::sleep(KNOWN).await;
    let calls = server.calls("evalsha");
    tokio::time::sleep(pace.of(Duration::from_secs(20), Duration::from_secs(2))).await;
    let sent = server.calls("evalsha") - calls;
    let near = Instant::now();
    proxy.set(Mode::Pass);
    let again = decides(&large, "acme").await - near;
    let samples = load.end().await;
    let first: Vec<Sample> = samples.iter().filter(|it| it.began < began + KNOWN).copied().collect();
    let known: Vec<Sample> =
        samples.iter().filter(|it| it.began >= began + KNOWN && it.began < near).copied().collect();
    findings.figure("check time in the first second, p99", Target::None, quantile(&first, 0.99), " ms");
    findings.figure("check time after it, p99", Target::AtMost(0.2), quantile(&known, 0.99), " ms");
    let others = known.iter().filter(|it| it.reason != Some("distant")).count();
    findings.figure("checks after it with another reason", Target::AtMost(0.0), others as f64, "");
    findings.figure("calls to the server after it", Target::AtMost(0.0), sent as f64, "");
    let added = again.as_secs_f64() * 1_000.0;
    findings.figure("from a short round trip to the next decision by the store", Target::AtMost(1_000.0), added, " ms");

    let text = logged(|| async {
        let Setup { _server, proxy, large } = setup().await;
        proxy.set(Mode::Delay(Duration::from_millis(70)));
        let began = Instant::now();
        while began.elapsed() < 3 * KNOWN {
            drop(large.check("acme").await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let lines = text.lines().filter(|line| line.contains("TOLLGATE-DISTANT")).count();
    findings.figure("log lines with TOLLGATE-DISTANT, at least", Target::AtLeast(1.0), lines as f64, "");
    findings.figure("the same, at most", Target::AtMost(1.0), lines as f64, "");
    findings.figure(
        "log lines in all, the begin of the outage among them",
        Target::None,
        text.lines().count() as f64,
        "",
    );
    findings
}

pub(super) async fn swing(pace: Pace) -> Findings {
    const SWING: Duration = Duration::from_secs(5);
    let mut findings = Findings::default();
    let Setup { _server, proxy, large } = setup().await;
    let load = Load::start(&large, TASKS, ["acme".into()]);
    let (began, mut short) = (Instant::now(), Vec::new());
    for _ in 0..pace.of(6, 2) {
        proxy.set(Mode::Delay(Duration::from_millis(20)));
        short.push(Instant::now());
        tokio::time::sleep(SWING).await;
        proxy.set(Mode::Delay(Duration::from_millis(60)));
        tokio::time::sleep(SWING).await;
    }
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let mut samples = load.end().await;
    let is_late = |it: &Sample| {
        short.iter().any(|&short| it.began >= short + KNOWN && it.began + it.took < short + SWING)
            && it.reason.is_some()
    };
    let late = samples.iter().filter(|it| is_late(it)).count();
    findings.figure("decided without the store, 1 s after it is at 20 ms", Target::AtMost(0.0), late as f64, "");
    samples.sort_unstable_by_key(|it| it.began + it.took);
    // Decided by the store, or at once without it. A timeout is neither.
    let states: Vec<bool> = samples
        .iter()
        .filter(|it| matches!(it.reason, None | Some("distant" | "breaker")))
        .map(|it| it.reason.is_none())
        .collect();
    let changes = states.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64;
    findings.figure("changes of state per minute", Target::AtMost(24.0), changes / minutes, "");
    findings.figure("decided without the store, in all", Target::None, share(degraded(&samples), samples.len()), " %");
    findings
}

pub(super) async fn brownout(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    // The replies of one connection come in order, so each caller has one.
    let mut setups = Vec::new();
    for _ in 0..8 {
        setups.push(setup().await);
    }
    let loads: Vec<Load> = setups
        .iter()
        .map(|Setup { proxy, large, .. }| {
            proxy.set(Mode::DelayEach(10, Duration::from_millis(80)));
            Load::start(large, 1, ["acme".into()])
        })
        .collect();
    tokio::time::sleep(pace.of(Duration::from_secs(20), Duration::from_secs(3))).await;
    let mut samples = Vec::new();
    for load in loads {
        samples.extend(load.end().await);
    }
    let beyond = share(degraded(&samples), samples.len()) - 10.0;
    let asked = format!("checks of {} that were late, beyond one of ten", samples.len());
    findings.figure(asked, Target::AtMost(1.0), beyond, " %");
    let left = samples.iter().filter(|it| it.reason == Some("distant")).count();
    findings.figure("checks that were not sent for it", Target::AtMost(0.0), left as f64, "");
    findings
}

fn degraded(samples: &[Sample]) -> usize {
    samples.iter().filter(|it| it.reason.is_some()).count()
}
