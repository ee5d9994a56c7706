//! Row: answers that come after the deadline.

use std::time::{Duration, Instant};

use tollgate::{Outage, RedisStore};
use tollgate_tests::{Mode, Proxy, RedisServer};

use crate::{
    findings::Findings,
    load::{LARGE, Load, Sample, decides, limiter, quantile},
    pace::Pace,
};

/// The number of tasks that check all the time.
const TASKS: usize = 16;

/// The time after which a new round trip is known.
const KNOWN: Duration = Duration::from_secs(1);

pub(super) async fn far(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::open(proxy.url()).expect("a store");
    // No replica is counted, so each call of a script is a check.
    let large = limiter(&store, LARGE, Outage::local(1));
    decides(&large, "acme").await;
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
    let first: Vec<Sample> = samples
        .iter()
        .filter(|it| it.began < began + KNOWN)
        .copied()
        .collect();
    let known: Vec<Sample> = samples
        .iter()
        .filter(|it| it.began >= began + KNOWN && it.began < near)
        .copied()
        .collect();
    findings.ms(
        "check time in the first second, p99",
        quantile(&first, 0.99),
    );
    findings
        .ms("check time after it, p99", quantile(&known, 0.99))
        .at_most(0.2);
    let others = known
        .iter()
        .filter(|it| it.reason != Some("distant"))
        .count();
    findings
        .count("checks after it with another reason", others as f64)
        .at_most(0.0);
    findings
        .count("calls to the server after it", sent as f64)
        .at_most(0.0);
    let added = again.as_secs_f64() * 1_000.0;
    findings
        .ms(
            "from a short round trip to the next decision by the store",
            added,
        )
        .at_most(1_000.0);
    findings
}
