//! Rows: floods of fresh keys.

use std::net::{Ipv6Addr, SocketAddr};

use tollgate::{Limiter, Policy, PolicySet, Quota};
use tollgate_tests::RedisServer;
use tollgate_tower::{
    KeyExtractor,
    key::{PeerIp, Prefixes},
};

use crate::{
    findings::Findings,
    heap::HEAP,
    load::{decides, patient_limiter, store_at},
    pace::Pace,
};

/// The tasks that send requests.
const TASKS: u64 = 256;

/// The quota of the whole network, where it has one.
const SITE: u64 = 1_000;

/// The growth that a flood caused.
struct Growth {
    admitted: u64,
    keys: f64,
    server_mib: f64,
    heap_mib: f64,
}

/// Floods a server with requests from one network, each from a /64 of its own. A /48 has only 65
/// 536 of them, so the network is a /44.
pub(super) async fn one_network(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let requests = pace.of(200_000, 60_000);
    let client = Policy::fixed_window("client", Quota::per_day(10));
    let site = Policy::fixed_window("site", Quota::per_day(SITE)).at_level(1);
    let asked = |what: &str, levels: &str| format!("{what} over {requests} /64s, {levels}");

    let flat = flood(&mut findings, requests, PeerIp, client.clone().into()).await;
    findings.count(asked("keys at the server", "each limited alone"), flat.keys);
    findings.figure(
        asked("growth of the server", "each limited alone"),
        flat.server_mib,
        " MiB",
    );
    findings.figure(
        asked("growth of the heap", "each limited alone"),
        flat.heap_mib,
        " MiB",
    );

    let networks = PeerIp.prefixes(Prefixes::ipv6([44, 64]));
    let nested = flood(&mut findings, requests, networks, [site, client].into()).await;
    let levels = format!("within a /44 of {SITE} a day");
    findings
        .count(asked("admitted", &levels), nested.admitted as f64)
        .at_most(SITE as f64);
    // One key for the network, and one for each request that it admitted.
    findings
        .count(asked("keys at the server", &levels), nested.keys)
        .at_most((SITE + 1) as f64);
    findings
        .figure(
            asked("growth of the server", &levels),
            nested.server_mib,
            " MiB",
        )
        .at_most(2.0);
    // The remembered denials have a table of fixed size.
    findings
        .figure(
            asked("growth of the heap", &levels),
            nested.heap_mib,
            " MiB",
        )
        .at_most(16.0);
    findings
}

async fn flood(
    findings: &mut Findings,
    requests: u64,
    extractor: impl KeyExtractor + Copy,
    policies: PolicySet,
) -> Growth {
    let server = RedisServer::start();
    let store = store_at(&server).await;
    let limiter = patient_limiter(store, policies);
    decides(&limiter, key(extractor, u64::MAX)).await;
    // The scripts, the tasks and the queue have their size before the flood.
    run(&limiter, extractor, requests..requests + TASKS * 4).await;
    limiter
        .reset(key(extractor, 0).parent().unwrap_or(key(extractor, 0)))
        .await
        .expect("a reset");
    server.command(&["FLUSHALL", "SYNC"]);
    let (memory_before, heap_before) = (used_mib(&server), heap_mib());
    let admitted = run(&limiter, extractor, 0..requests).await;
    let growth = Growth {
        admitted,
        keys: server.command(&["DBSIZE"]).int() as f64,
        server_mib: used_mib(&server) - memory_before,
        heap_mib: heap_mib() - heap_before,
    };
    findings.keys(server.keys_and_expires());
    growth
}

/// Sends one request from each /64 of this range, and returns the number of those that are
/// admitted.
async fn run(
    limiter: &Limiter,
    extractor: impl KeyExtractor + Copy,
    numbers: std::ops::Range<u64>,
) -> u64 {
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (limiter, numbers) = (limiter.clone(), numbers.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                for number in numbers.skip(task as usize).step_by(TASKS as usize) {
                    let decision = limiter
                        .check(key(extractor, number))
                        .await
                        .expect("a decision");
                    admitted += u64::from(decision.is_allowed());
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.expect("a task");
    }
    admitted
}

/// Returns the key of a request from this /64 of one /44.
fn key(extractor: impl KeyExtractor + Copy, number: u64) -> tollgate::Key {
    let address = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number & 0xf_ffff) << 64 | 1);
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::from((address, 50_000)));
    extractor.extract(&parts).ok().flatten().expect("a key")
}

fn used_mib(server: &RedisServer) -> f64 {
    let used: f64 = server.info("memory")["used_memory"]
        .parse()
        .expect("a number of bytes");
    used / 1_048_576.0
}

/// Returns the memory in use on the heap of this process in MiB.
pub(super) fn heap_mib() -> f64 {
    let stats = HEAP.stats();
    (stats.bytes_allocated as f64 - stats.bytes_deallocated as f64) / 1_048_576.0
}
