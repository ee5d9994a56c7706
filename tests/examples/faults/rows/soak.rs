//! Load for twenty minutes: what grows by itself.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tollgate::{Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_tests::RedisServer;

use super::network::memory;
use crate::{
    Pace,
    load::{LARGE, decides, limiter},
    report::{Findings, Target},
};

const TASKS: u64 = 4;
/// Few, so that what is bounded (states of outages, remembered denials) is full before the first look.
const KEYS: u64 = 64;

/// What is looked at each second: after how many seconds, MiB in memory, files that are open, connections at the server.
type Look = (f64, f64, f64, f64);

pub(super) async fn load(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let (large, small) = (
        limiter(&store, LARGE, Outage::default()),
        // Most of its keys are denied most of the time.
        limiter(&store, Policy::token_bucket("small", Quota::per_minute(1)), Outage::default()),
    );
    decides(&large, "acme").await;
    let (seconds, warm) = pace.of((1_200, 120), (60, 20));
    let (is_over, checks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(spend(large.clone(), small.clone(), task, Arc::clone(&is_over), Arc::clone(&checks))))
        .collect();
    // All of it is written, and so in memory, before the first look.
    let mut looks: Vec<Look> = vec![(1.0, 1.0, 1.0, 1.0); seconds - warm];
    let began = Instant::now();
    for second in 1..=seconds {
        tokio::time::sleep_until((began + Duration::from_secs(second as u64)).into()).await;
        if second > warm {
            looks[second - warm - 1] = look(&server, began);
        }
        // Ends well before the next look.
        if second % 10 == 0 {
            server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            server.command(&["SCRIPT", "FLUSH"]);
            decides(&large, "acme").await;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let mut errors = 0;
    for task in tasks {
        errors += task.await.expect("a task");
    }
    let checks = checks.load(Ordering::Relaxed);
    let minutes = seconds / 60;
    let asked = format!("checks without an answer, of {checks} in {minutes} min, connections killed each 10 s");
    findings.figure(asked, Target::AtMost(0.0), errors as f64, "");
    // A minute tells nothing of an hour.
    let target = if pace.is_quick { Target::None } else { Target::AtMost(1.0) };
    let slope = slope(&looks);
    findings.figure(
        format!("growth of the process' memory, from minute {} on", warm / 60),
        target,
        slope,
        " % an hour",
    );
    findings.score(24, "20 minutes of load: growth of memory", target, slope, " % an hour");
    for (asked, of) in [("open files", (|it| it.2) as fn(&Look) -> f64), ("connections at the server", |it| it.3)] {
        let values: Vec<f64> = looks.iter().map(of).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let grown = most - values[0];
        findings.figure(format!("{asked}, most above those of the first look"), Target::AtMost(0.0), grown, "");
        findings.score(24, &format!("the same: {asked}, growth"), Target::AtMost(0.0), grown, "");
    }
    findings.keys(server.keys_and_expires());
    findings
}

async fn spend(large: Limiter, small: Limiter, task: u64, is_over: Arc<AtomicBool>, checks: Arc<AtomicU64>) -> u64 {
    let (mut errors, mut at) = (0, task);
    while !is_over.load(Ordering::Relaxed) {
        at += TASKS;
        let limiter = if at % 8 < TASKS { &large } else { &small };
        errors += u64::from(limiter.check(at % KEYS).await.is_err());
        checks.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    errors
}

fn look(server: &RedisServer, began: Instant) -> Look {
    let files = fs::read_dir("/proc/self/fd").expect("linux tells").count() as f64;
    let clients = server.info("clients")["connected_clients"].parse().expect("a number");
    (began.elapsed().as_secs_f64(), memory(), files, clients)
}

/// The line through all looks, by least squares: how much memory grows in an hour, in percent of the mean.
fn slope(looks: &[Look]) -> f64 {
    let count = looks.len() as f64;
    let (times, sizes) =
        (looks.iter().map(|it| it.0).sum::<f64>() / count, looks.iter().map(|it| it.1).sum::<f64>() / count);
    let covariance: f64 = looks.iter().map(|it| (it.0 - times) * (it.1 - sizes)).sum();
    let variance: f64 = looks.iter().map(|it| (it.0 - times).powi(2)).sum();
    100.0 * covariance / variance * 3_600.0 / sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_megabyte_a_minute_of_a_hundred_is_sixty_percent_an_hour() {
        let looks: Vec<Look> =
            (0..61).map(|at| (f64::from(at), 100.0 + (f64::from(at) - 30.0) / 60.0, 0.0, 0.0)).collect();
        assert!((slope(&looks) - 60.0).abs() < 1e-9, "{}", slope(&looks));
    }
}
