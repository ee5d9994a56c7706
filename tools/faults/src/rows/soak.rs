//! Row: load for twenty minutes, and what grows meanwhile.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tollgate::{Limiter, Outage, Policy, Quota};
use tollgate_tests::RedisServer;

use super::network::memory;
use crate::{
    findings::Findings,
    heap::HEAP,
    load::{LARGE, decides, limiter, store_at},
    pace::Pace,
};

const TASKS: u64 = 4;
/// So few that bounded tables (states of outages, cached denials) are full before the first
/// measurement.
const KEYS: u64 = 64;

/// The measurements of one second.
#[derive(Clone, Copy)]
struct Look {
    /// Seconds since the beginning.
    at: f64,
    /// The allocated memory in MiB.
    heap: f64,
    /// The resident memory of the process in MiB.
    resident: f64,
    /// The number of open files.
    files: f64,
    /// The number of connections at the server.
    clients: f64,
}

pub(super) async fn load(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let store = store_at(&server).await;
    let (large, small) = (
        limiter(&store, LARGE, Outage::default()),
        // Most of its keys are denied most of the time.
        limiter(
            &store,
            Policy::token_bucket("small", Quota::per_minute(1)),
            Outage::default(),
        ),
    );
    decides(&large, "acme").await;
    let (seconds, warm) = pace.of((1_200, 120), (60, 20));
    let (is_over, checks) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            tokio::spawn(spend(
                large.clone(),
                small.clone(),
                task,
                Arc::clone(&is_over),
                Arc::clone(&checks),
            ))
        })
        .collect();
    // Written in full, and so resident, before the first measurement.
    let mut looks: Vec<Look> = vec![
        Look {
            at: 1.0,
            heap: 1.0,
            resident: 1.0,
            files: 1.0,
            clients: 1.0
        };
        seconds - warm
    ];
    let began = Instant::now();
    for second in 1..=seconds {
        tokio::time::sleep_until((began + Duration::from_secs(second as u64)).into()).await;
        if second > warm {
            looks[second - warm - 1] = look(&server, began);
        }
        // Ends well before the next measurement.
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
    let asked = format!(
        "checks without an answer, of {checks} in {minutes} min, connections killed each 10 s"
    );
    findings.count(asked, errors as f64).at_most(0.0);
    let minute = looks.len().min(60);
    for (which, part) in [
        ("first", &looks[..minute]),
        ("last", &looks[looks.len() - minute..]),
    ] {
        let least = part.iter().map(heap_of).fold(f64::INFINITY, f64::min) * 1_024.0;
        findings.figure(
            format!("in use on the heap, least of the {which} minute"),
            least,
            " KiB",
        );
    }
    let size = mean(&looks, |look| look.resident);
    // Both relative to the memory of the process: relative to the small heap, a few KiB would be
    // much.
    for (what, slope) in [
        (
            "what is in use on the heap, beside the process' memory",
            slope(&looks, heap_of),
        ),
        ("the process' memory", slope(&looks, |look| look.resident)),
    ] {
        let grown = 100.0 * slope / size;
        let asked = format!("growth of {what}, from minute {} on", warm / 60);
        let figure = findings.figure(asked, grown, " % an hour");
        // A minute is too short for a figure per hour.
        if !pace.is_quick {
            figure.at_most(1.0);
        }
    }
    for (asked, of) in [
        ("open files", (|look| look.files) as fn(&Look) -> f64),
        ("connections at the server", |look| look.clients),
    ] {
        let values: Vec<f64> = looks.iter().map(of).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let grown = most - values[0];
        findings
            .count(
                format!("{asked}, most above those of the first look"),
                grown,
            )
            .at_most(0.0);
    }
    findings.keys(server.keys_and_expires());
    findings
}

async fn spend(
    large: Limiter,
    small: Limiter,
    task: u64,
    is_over: Arc<AtomicBool>,
    checks: Arc<AtomicU64>,
) -> u64 {
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
    // Before the measurement itself allocates.
    let (at, heap, resident) = (began.elapsed().as_secs_f64(), heap(), memory());
    let files = fs::read_dir("/proc/self/fd").expect("linux tells").count() as f64;
    let clients = server.info("clients")["connected_clients"]
        .parse()
        .expect("a number");
    Look {
        at,
        heap,
        resident,
        files,
        clients,
    }
}

/// Returns the allocated memory in MiB.
fn heap() -> f64 {
    let stats = HEAP.stats();
    (stats.bytes_allocated as f64 - stats.bytes_deallocated as f64) / 1_048_576.0
}

fn heap_of(look: &Look) -> f64 {
    look.heap
}

fn mean(looks: &[Look], of: impl Fn(&Look) -> f64) -> f64 {
    looks.iter().map(of).sum::<f64>() / looks.len() as f64
}

/// Returns the growth per hour of the line through all measurements, by least squares.
fn slope(looks: &[Look], of: impl Fn(&Look) -> f64) -> f64 {
    let (time, size) = (mean(looks, |look| look.at), mean(looks, &of));
    let covariance: f64 = looks
        .iter()
        .map(|look| (look.at - time) * (of(look) - size))
        .sum();
    let variance: f64 = looks.iter().map(|look| (look.at - time).powi(2)).sum();
    covariance / variance * 3_600.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mebibyte_a_minute_is_sixty_an_hour() {
        let look = |at| Look {
            at,
            heap: 100.0 + (at - 30.0) / 60.0,
            resident: 1.0,
            files: 0.0,
            clients: 0.0,
        };
        let looks: Vec<Look> = (0..61).map(|at| look(f64::from(at))).collect();
        let slope = slope(&looks, |look| look.heap);
        assert!((slope - 60.0).abs() < 1e-9, "{slope}");
    }
}
