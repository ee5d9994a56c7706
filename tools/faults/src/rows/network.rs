//! Rows: broken connections, and invalid replies.

use std::{fs, time::Duration};

use tollgate::{Cost, Limiter, Outage, RedisStore};
use tollgate_tests::{Mode, Proxy, RedisServer};

use crate::{
    findings::Findings,
    load::{AMOUNT, LARGE, Load, decides, degraded, limiter, ready},
    pace::Pace,
};

pub(super) async fn kills(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let (server, _, large) = ready().await;
    let received = || {
        server.info("stats")["total_connections_received"]
            .parse::<f64>()
            .expect("a number")
    };
    let (before, kills) = (received(), pace.of(100, 20));
    let load = Load::start(&large, 16, ["acme".into()]);
    for _ in 0..kills {
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    decides(&large, "acme").await;
    let made = received() - before;
    let samples = load.end().await;
    let degraded = degraded(&samples);
    let share = 100.0 * degraded / samples.len() as f64;
    findings.percent(
        "checks decided without the store, a kill each 100 ms",
        share,
    );
    let refused = samples.iter().filter(|sample| !sample.is_allowed).count();
    findings
        .count("checks without an answer", refused as f64)
        .at_most(0.0);
    findings
        .count("new connections per kill", made / f64::from(kills))
        .at_most(1.0);
    findings.keys(server.keys_and_expires());
    findings
}

pub(super) async fn nonsense(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let before = memory();
    let words = [
        &b"!?*\r\n$-9\r\n"[..],
        b"+OK\r\n",
        b"$3\r\nabc\r\n",
        b"*0\r\n",
        b"_\r\n",
        b">2\r\n+a\r\n+b\r\n",
        b"HTTP/1.1 400\r\n\r\n",
    ];
    let huge = [&b"$536870912\r\n"[..], b"*1000000\r\n"];
    let modes = words
        .into_iter()
        .chain(huge)
        .map(|bytes| Mode::Garbage(bytes.to_vec()));
    let cuts = [0, 1, 2, 3, 5, 8, 13, 21]
        .into_iter()
        .flat_map(|at| [Mode::CutAfter(at), Mode::ResetAfter(at)]);
    let modes: Vec<Mode> = modes
        .chain(cuts)
        .chain([Mode::Trickle(Duration::from_millis(1)), Mode::Refuse])
        .collect();
    let (mut next, mut wrong, mut right) = (0, 0, 0);
    let mut most = before;
    for _ in 0..pace.of(3, 1) {
        for mode in &modes {
            let store = RedisStore::open(proxy.url()).expect("a store");
            let large = limiter(&store, LARGE, Outage::Closed);
            proxy.set(Mode::Pass);
            decides(&large, "acme").await;
            proxy.set(mode.clone());
            crowd(&large, &mut next, &mut right, &mut wrong).await;
            most = most.max(memory());
            proxy.set(Mode::Pass);
            decides(&large, "acme").await;
            crowd(&large, &mut next, &mut right, &mut wrong).await;
        }
    }
    assert!(right > 0);
    findings
        .count(
            format!("decisions misread, of {}", right + wrong),
            f64::from(wrong),
        )
        .at_most(0.0);
    findings
        .figure(
            "memory of the process, growth",
            (most - before).max(0.0),
            " MiB",
        )
        .at_most(32.0);
    findings.keys(server.keys_and_expires());
    findings
}

/// Makes a hundred checks at once, each with a key and a cost of its own, which the answer has to
/// show.
async fn crowd(large: &Limiter, next: &mut u64, right: &mut u32, wrong: &mut u32) {
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            *next += 1;
            let (large, key, cost) = (large.clone(), *next, *next % 5_000 + 1);
            tokio::spawn(async move {
                let decision = large
                    .check(("crowd", key))
                    .cost(Cost::new(cost))
                    .await
                    .ok()?;
                Some(decision.states().next()?.remaining() == AMOUNT - cost)
            })
        })
        .collect();
    for task in tasks {
        match task.await.expect("a task") {
            Some(true) => *right += 1,
            Some(false) => *wrong += 1,
            None => {}
        }
    }
}

/// Returns the resident memory of this process in MiB.
pub(super) fn memory() -> f64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("linux tells");
    let pages: f64 = pages
        .split(' ')
        .nth(1)
        .and_then(|it| it.parse().ok())
        .expect("a number of pages");
    pages * rustix::param::page_size() as f64 / 1_048_576.0
}
