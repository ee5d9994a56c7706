//! Rows: a server that sends more than was asked for, as fast as it can.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tollgate::{Outage, RedisStore};
use tollgate_tests::{Mode, Proxy, RedisServer};

use super::{floods::heap_mib, network::memory};
use crate::{
    findings::Findings,
    load::{LARGE, Load, Sample, decides, limiter, quantile},
    pace::Pace,
};

/// The callers that check all the time.
const TASKS: usize = 16;

/// How long a server sends.
const SENDS: Duration = Duration::from_millis(500);

/// The bytes that are sent at a time.
const PIECE: usize = 64 * 1024;

pub(super) async fn text(pace: Pace) -> Findings {
    sent(pace, "$2000000000\r\n", "x").await
}

pub(super) async fn line(pace: Pace) -> Findings {
    sent(pace, "+", "x").await
}

pub(super) async fn error(pace: Pace) -> Findings {
    sent(pace, "-ERR ", "x").await
}

pub(super) async fn big_number(pace: Pace) -> Findings {
    sent(pace, "(", "1").await
}

pub(super) async fn array(pace: Pace) -> Findings {
    sent(pace, "*1000000000\r\n", ":1\r\n").await
}

pub(super) async fn lists(pace: Pace) -> Findings {
    sent(pace, "*1000\r\n", "*1000\r\n").await
}

pub(super) async fn map(pace: Pace) -> Findings {
    sent(pace, "%1000000000\r\n", "_\r\n").await
}

pub(super) async fn push(pace: Pace) -> Findings {
    sent(pace, ">1000000000\r\n", "_\r\n").await
}

pub(super) async fn attributes(pace: Pace) -> Findings {
    sent(pace, "|1000000000\r\n", "_\r\n").await
}

pub(super) async fn unasked(pace: Pace) -> Findings {
    sent(pace, "+OK\r\n", ">2\r\n+message\r\n+OK\r\n+OK\r\n").await
}

/// Checks while the server sends `begin`, and then `again` without an end, in place of each reply.
async fn sent(pace: Pace, begin: &str, again: &str) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let store = RedisStore::open(proxy.url()).expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    let endless = Mode::Endless(
        begin.as_bytes().to_vec(),
        again.as_bytes().repeat(PIECE / again.len()),
    );
    let mut samples: Vec<Sample> = Vec::new();
    let (mut heap, mut process) = (0.0_f64, 0.0_f64);
    for round in 0..pace.of(10_u64, 3) {
        proxy.set(Mode::Pass);
        decides(&large, round).await;
        let peaks = Peaks::start();
        let load = Load::start(&large, TASKS, [round.into()]);
        proxy.set(endless.clone());
        tokio::time::sleep(SENDS).await;
        samples.extend(load.end().await);
        let [of_heap, of_process] = peaks.end();
        (heap, process) = (heap.max(of_heap), process.max(of_process));
    }
    proxy.set(Mode::Pass);
    decides(&large, "acme").await;
    let refused = samples.iter().filter(|sample| !sample.is_allowed).count();
    findings
        .figure("memory in use, growth, most", heap, " MiB")
        .at_most(8.0);
    findings
        .figure("memory of the process, growth, most", process, " MiB")
        .at_most(32.0);
    findings
        .ms("longest decision", quantile(&samples, 1.0))
        .at_most(70.0);
    findings
        .count(
            format!("checks without an answer, of {}", samples.len()),
            refused as f64,
        )
        .at_most(0.0);
    findings.keys(server.keys_and_expires());
    findings
}

/// Looks at the memory all the time, from a thread of its own.
struct Peaks {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<[f64; 2]>,
}

impl Peaks {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let looking = {
            let is_over = Arc::clone(&is_over);
            move || {
                let now = || [heap_mib(), memory()];
                let (before, mut most) = (now(), [0.0_f64; 2]);
                while !is_over.load(Ordering::Relaxed) {
                    let now = now();
                    most = [0, 1].map(|at| most[at].max(now[at] - before[at]));
                    thread::sleep(Duration::from_micros(200));
                }
                most
            }
        };
        Self {
            is_over,
            thread: thread::spawn(looking),
        }
    }

    /// Returns how much the heap and the process have grown at most, in MiB.
    fn end(self) -> [f64; 2] {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a thread")
    }
}
