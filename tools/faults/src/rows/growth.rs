//! Rows: what grows with floods of keys, with replies without an end, and with time.

use std::{
    alloc::System,
    fs,
    net::{Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::{task::JoinSet, time::sleep};
use tollgate::{Key, Outage, Policy, PolicySet, Quota, RedisStore};
use tollgate_test_support::patient_limiter;
use tollgate_tests::{Mode, Proxy, RedisServer, ports};
use tollgate_tower::{
    KeyExtractor,
    key::{PeerIp, Prefixes},
};

use super::Pace;
use crate::{
    findings::Findings,
    load::{Load, Sample, decides, large, limiter, longest, sample, until},
};

const MIB: f64 = 1_048_576.0;

/// Counts the bytes in use on the heap, which the memory of the process does not show.
#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the memory in use on the heap of this process in MiB.
fn heap() -> f64 {
    let stats = HEAP.stats();
    (stats.bytes_allocated as f64 - stats.bytes_deallocated as f64) / MIB
}

/// Returns the resident memory of this process in MiB.
fn resident() -> f64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("linux tells");
    let pages = pages.split(' ').nth(1).map(str::parse::<f64>);
    let pages = pages.and_then(Result::ok).expect("a number of pages");
    pages * rustix::param::page_size() as f64 / MIB
}

/// Shows a server that sends more than was asked for, as fast as it can.
pub(super) async fn endless(pace: Pace) -> Findings {
    let replies = [
        ("$2000000000\r\n", "x"),
        ("+", "x"),
        ("-ERR ", "x"),
        ("(", "1"),
        ("*1000000000\r\n", ":1\r\n"),
        ("*1000\r\n", "*1000\r\n"),
        ("%1000000000\r\n", "_\r\n"),
        (">1000000000\r\n", "_\r\n"),
        ("|1000000000\r\n", "_\r\n"),
        ("+OK\r\n", ">2\r\n+message\r\n+OK\r\n+OK\r\n"),
    ];
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let proxy = Proxy::start(server.addr());
    let large = large(&RedisStore::open(proxy.url()).expect("a store"));
    let (mut samples, mut most) = (Vec::<Sample>::new(), [0.0_f64; 2]);
    for (begin, again) in replies {
        let again = again.as_bytes().repeat(64 * 1024 / again.len());
        let endless = Mode::Endless(begin.as_bytes().to_vec(), again);
        for round in 0..pace.of(10_u64, 1) {
            proxy.set(Mode::Pass);
            decides(&large, round).await;
            let peaks = Peaks::start();
            let load = Load::start(&large, 16, [round.into()]);
            proxy.set(endless.clone());
            sleep(Duration::from_millis(500)).await;
            let of_load = load.end_answered().await;
            let of_round = peaks.end();
            // All samples together would take more memory than the replies.
            samples.extend(of_load);
            most = [0, 1].map(|at| most[at].max(of_round[at]));
        }
    }
    findings.at_most(8.0, "memory in use, growth, most", most[0], "MiB");
    findings.at_most(32.0, "memory of the process, growth, most", most[1], "MiB");
    longest(&mut findings, "longest decision", &samples);
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
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let now = || [heap(), resident()];
            let (before, mut most) = (now(), [0.0_f64; 2]);
            while !ends.load(Ordering::Relaxed) {
                let now = now();
                most = [0, 1].map(|at| most[at].max(now[at] - before[at]));
                thread::sleep(Duration::from_micros(200));
            }
            most
        });
        Self { is_over, thread }
    }

    /// Returns how much the heap and the process have grown at most, in MiB.
    fn end(self) -> [f64; 2] {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("a thread")
    }
}

/// Returns the key of a request from a /64 of its own.
fn key(extractor: &impl KeyExtractor, number: u64) -> Key {
    let address = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number) << 64 | 1);
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::from((address, 50_000)));
    extractor.extract(&parts).ok().flatten().expect("a key")
}

/// Floods a server with requests from one network, each from a /64 of its own. A /48 has only
/// 65 536 of them, so the network is a /44.
pub(super) async fn one_network(pace: Pace) -> Findings {
    const SITE: u64 = 1_000;
    let mut findings = Findings::default();
    let requests = pace.of(200_000, 60_000);
    let client = Policy::fixed_window("client", Quota::per_day(10));
    let site = Policy::fixed_window("site", Quota::per_day(SITE)).at_level(1);
    let alone = flood(requests, PeerIp, client.clone().into()).await;
    let networks = PeerIp.prefixes(Prefixes::ipv6([44, 64]));
    let within = flood(requests, networks, [site, client].into()).await;
    // One key for the network, and one for each request that it admitted.
    assert!(within.admitted <= SITE && within.keys <= SITE + 1);
    let asked = |what| format!("{what}, {requests} /64s, each limited alone");
    findings.shown(asked("keys at the server"), alone.keys as f64, "");
    findings.shown(asked("growth of the server"), alone.server, "MiB");
    findings.shown(asked("growth of the heap"), alone.heap, "MiB");
    let asked = |what| format!("{what}, the same within a /44 of {SITE} a day");
    findings.shown(asked("keys at the server"), within.keys as f64, "");
    findings.at_most(2.0, asked("growth of the server"), within.server, "MiB");
    // The remembered denials have a table of fixed size.
    findings.at_most(16.0, asked("growth of the heap"), within.heap, "MiB");
    findings
}

/// The effect of a flood. Memory is in MiB.
struct Growth {
    admitted: u64,
    keys: u64,
    server: f64,
    heap: f64,
}

async fn flood(requests: u64, extractor: impl KeyExtractor + Copy, policies: PolicySet) -> Growth {
    const TASKS: u64 = 256;
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.expect("a store");
    let limiter = patient_limiter(store, policies);
    let run = async |numbers: std::ops::Range<u64>| {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let keys = numbers.clone().skip(task as usize).step_by(TASKS as usize);
            let keys: Vec<_> = keys.map(|number| key(&extractor, number)).collect();
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut admitted = 0;
                for key in keys {
                    let decision = limiter.check(key).await.expect("a decision");
                    admitted += u64::from(decision.is_allowed());
                }
                admitted
            });
        }
        tasks.join_all().await.into_iter().sum::<u64>()
    };
    // The scripts, the tasks and the queue have their size before the flood.
    run(requests..requests + TASKS * 4).await;
    let network = key(&extractor, 0);
    limiter
        .reset(network.parent().unwrap_or(network))
        .await
        .expect("a reset");
    server.command(&["FLUSHALL", "SYNC"]);
    let used = || {
        server.info("memory")["used_memory"]
            .parse::<f64>()
            .expect("bytes")
            / MIB
    };
    let (server_before, heap_before) = (used(), heap());
    let admitted = run(0..requests).await;
    Growth {
        admitted,
        keys: server.command(&["DBSIZE"]).int() as u64,
        server: used() - server_before,
        heap: heap() - heap_before,
    }
}

/// Decides for keys that are all new, without the store.
pub(super) async fn keys(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let store = RedisStore::open(format!("redis://127.0.0.1:{}", ports::free())).expect("a store");
    let large = large(&store);
    until("the store to be away", async || {
        sample(&large, "acme").await.reason.is_some() && !store.is_available()
    })
    .await;
    let (before, keys) = (resident(), pace.of(10_000_000_u64, 1_000_000));
    for at in 0..keys {
        assert!(sample(&large, key(&PeerIp, at)).await.is_allowed);
        if at % 10_000 == 0 {
            sleep(Duration::ZERO).await;
        }
    }
    let asked = format!("growth of the process over {keys} keys");
    findings.at_most(32.0, asked, resident() - before, "MiB");
    findings
}

/// The measurements of one second: the seconds since the beginning, memory in MiB, and the numbers
/// of open files and of connections at the server.
#[derive(Clone, Copy)]
struct Look {
    at: f64,
    heap: f64,
    resident: f64,
    files: f64,
    clients: f64,
}

pub(super) async fn soak(pace: Pace) -> Findings {
    const TASKS: u64 = 4;
    /// So few that bounded tables (states of outages, cached denials) are full before the first
    /// measurement.
    const KEYS: u64 = 64;
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url_at(server.addr())).await;
    let store = store.expect("a store");
    // Most keys of the small one are denied most of the time.
    let small = Policy::token_bucket("small", Quota::per_minute(1));
    let limiters = [large(&store), limiter(&store, small, Outage::default())];
    let (seconds, warm) = pace.of((1_200, 120), (60, 20));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiters, is_over) = (limiters.clone(), Arc::clone(&is_over));
        tasks.spawn(async move {
            let mut checks = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let limiter = &limiters[(checks % 2) as usize];
                let key = (task + checks) % KEYS;
                let _ = limiter.check(key).await.expect("an answer");
                checks += 1;
                sleep(Duration::from_millis(1)).await;
            }
            checks
        });
    }
    let began = Instant::now();
    // Written in full, and so resident, before the first measurement.
    let mut looks = vec![look(&server, began); seconds - warm];
    for second in 1..=seconds {
        tokio::time::sleep_until((began + Duration::from_secs(second as u64)).into()).await;
        if second > warm {
            looks[second - warm - 1] = look(&server, began);
        }
        // Ends well before the next measurement.
        if second % 10 == 0 {
            server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            server.command(&["SCRIPT", "FLUSH"]);
            decides(&limiters[0], "acme").await;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let checks: u64 = tasks.join_all().await.into_iter().sum();
    findings.shown(
        format!("checks in {seconds} s, each answered"),
        checks as f64,
        "",
    );
    let most = |of: fn(&Look) -> f64| looks.iter().map(of).fold(0.0, f64::max);
    assert!(most(|it| it.files) <= looks[0].files, "open files leak");
    assert!(
        most(|it| it.clients) <= looks[0].clients,
        "connections leak"
    );
    // Both relative to the memory of the process: relative to the small heap, a few KiB would be
    // much. A minute is too short for a figure per hour.
    let size = mean(&looks, |look| look.resident);
    let mut grows = |asked, of: fn(&Look) -> f64| {
        let grown = 100.0 * slope(&looks, of) / size;
        if pace.is_quick {
            findings.shown(asked, grown, "% an hour");
        } else {
            findings.at_most(1.0, asked, grown, "% an hour");
        }
    };
    grows(
        "growth of what is in use on the heap, beside the process' memory",
        |look| look.heap,
    );
    grows("growth of the process' memory", |look| look.resident);
    findings
}

fn look(server: &RedisServer, began: Instant) -> Look {
    // Before the measurement itself allocates.
    let (at, heap, resident) = (began.elapsed().as_secs_f64(), heap(), resident());
    let clients = &server.info("clients")["connected_clients"];
    Look {
        at,
        heap,
        resident,
        files: fs::read_dir("/proc/self/fd").expect("linux tells").count() as f64,
        clients: clients.parse().expect("a number"),
    }
}

fn mean(looks: &[Look], of: fn(&Look) -> f64) -> f64 {
    looks.iter().map(of).sum::<f64>() / looks.len() as f64
}

/// Returns the growth per hour of the line through all measurements, by least squares.
fn slope(looks: &[Look], of: fn(&Look) -> f64) -> f64 {
    let (time, size) = (mean(looks, |look| look.at), mean(looks, of));
    let products = looks
        .iter()
        .map(|look| (look.at - time) * (of(look) - size));
    let squares = looks.iter().map(|look| (look.at - time).powi(2));
    products.sum::<f64>() / squares.sum::<f64>() * 3_600.0
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
