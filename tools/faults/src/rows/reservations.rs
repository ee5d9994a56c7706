//! Rows: a service that reserves and does nothing else, on a server that is silent, slow or dead.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tollgate::{Cost, ErrorKind, Limiter, Outage, RedisStore};
use tollgate_tests::{Mode, Proxy, RedisServer};

use crate::{
    findings::Findings,
    load::{LARGE, decides, limiter, millis, store_at},
    pace::Pace,
};

/// The numbers of callers that reserve side by side.
const CALLERS: [usize; 3] = [1, 16, 256];

/// The pause of up to sixteen callers between two reservations. More callers make longer pauses, so
/// that the server has time for all of them: each reservation is a call of its own.
const PAUSE: Duration = Duration::from_millis(5);

/// The deadline of a limiter by default.
const DEADLINE: Duration = Duration::from_millis(50);

/// Counts what the reservations of all callers met after the fault began.
struct Met {
    /// The number that waited until their deadline.
    waited: usize,
    /// The time from the fault to the end of the last of them.
    until: Duration,
    /// The longest reservation.
    longest: Duration,
}

/// Lets callers reserve, raises a fault, and returns what they met.
async fn met(large: &Limiter, callers: usize, time: Duration, raise: impl FnOnce()) -> Met {
    let is_over = Arc::new(AtomicBool::new(false));
    let pause = PAUSE * u32::try_from(callers.div_ceil(16)).unwrap_or(u32::MAX);
    let caller = |at: usize| {
        let (large, is_over) = (large.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut calls = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                let reservation = large
                    .reserve(at as u64, Cost::ONE)
                    .await
                    .expect("the local share decides");
                calls.push((began, began.elapsed(), reservation.decision().degraded()));
                tokio::time::sleep(pause).await;
            }
            calls
        })
    };
    let tasks: Vec<_> = (0..callers).map(caller).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let raised = Instant::now();
    raise();
    tokio::time::sleep(time).await;
    is_over.store(true, Ordering::Relaxed);
    let mut met = Met {
        waited: 0,
        until: Duration::ZERO,
        longest: Duration::ZERO,
    };
    for task in tasks {
        for (began, took, reason) in task.await.expect("a task") {
            if began + took < raised {
                continue;
            }
            met.longest = met.longest.max(took);
            // A reservation that waits when the breaker opens ends before.
            if reason == Some(ErrorKind::Timeout) && took >= DEADLINE {
                met.waited += 1;
                met.until = met.until.max(began + took - raised);
            }
        }
    }
    met
}

fn report(findings: &mut Findings, callers: usize, most: f64, met: &Met) {
    let asked = format!("reservations that waited until their deadline, {callers} callers");
    findings.count(asked, met.waited as f64).at_most(most);
    findings.ms(
        "the same, the last of them after the fault",
        millis(met.until),
    );
    findings
        .ms("the same, the longest reservation", millis(met.longest))
        .at_most(70.0);
}

/// Three deadlines open the breaker. All callers that wait by then have had their deadline, or end
/// with it.
pub(super) async fn silent(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    for callers in CALLERS {
        let server = RedisServer::start();
        let store = store_at(&server).await;
        let large = limiter(&store, LARGE, Outage::local(1));
        decides(&large, "acme").await;
        let time = pace.of(Duration::from_secs(3), Duration::from_millis(700));
        let met = met(&large, callers, time, || server.pause()).await;
        server.resume();
        report(&mut findings, callers, callers.max(3) as f64, &met);
        findings.keys(server.keys_and_expires());
    }
    findings
}

/// The excess of eight late calls starts the measurement of the round trip. Callers wait until it
/// ends.
pub(super) async fn slow(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    for callers in CALLERS {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.addr());
        let store = RedisStore::connect(proxy.url()).await.expect("a store");
        let large = limiter(&store, LARGE, Outage::local(1));
        decides(&large, "acme").await;
        let time = pace.of(Duration::from_secs(3), Duration::from_millis(1_500));
        let round_trip = DEADLINE * 7 / 5;
        let met = met(&large, callers, time, || proxy.set(Mode::Delay(round_trip))).await;
        // The eight, and two round trips of measurement at one deadline for each caller and round.
        let rounds = (2.0 * millis(round_trip) / millis(DEADLINE)).ceil() + 1.0;
        report(&mut findings, callers, 8.0 + callers as f64 * rounds, &met);
        findings.keys(server.keys_and_expires());
    }
    findings
}

/// A refused connection opens the breaker at once.
pub(super) async fn dead(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    for callers in CALLERS {
        let server = Arc::new(RedisServer::start());
        let store = store_at(&server).await;
        let large = limiter(&store, LARGE, Outage::local(1));
        decides(&large, "acme").await;
        let killing = Arc::clone(&server);
        let time = pace.of(Duration::from_secs(3), Duration::from_millis(700));
        let met = met(&large, callers, time, || {
            drop(tokio::task::spawn_blocking(move || killing.kill()))
        })
        .await;
        report(&mut findings, callers, 0.0, &met);
        server.restart();
        findings.keys(server.keys_and_expires());
    }
    findings
}
