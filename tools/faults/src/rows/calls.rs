//! Rows: dropped futures, and millions of keys.

use std::{
    fs,
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use tollgate::{Cost, Outage, RedisStore};
use tollgate_tests::{RedisServer, ports};
use tollgate_tower::{KeyExtractor, key::PeerIp};

use super::network::memory;
use crate::{
    findings::Findings,
    load::{AMOUNT, LARGE, decides, limiter, patient_limiter, sample, store_at, until},
    pace::Pace,
};

pub(super) async fn dropped(pace: Pace) -> Findings {
    const TASKS: u64 = 50;
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let store = store_at(&server).await;
    let large = patient_limiter(store.clone(), LARGE);
    decides(&large, "acme").await;
    let open = || fs::read_dir("/proc/self/fd").expect("linux tells").count();
    let (before, calls) = (open(), pace.of(250_000, 20_000));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let large = large.clone();
            tokio::spawn(async move {
                let (mut dropped, mut wrong, mut at) = (0_u64, 0_u64, task);
                while at < calls {
                    at += TASKS;
                    let cost = at % 5_000 + 1;
                    // Half of the checks are dropped, after up to seven turns of the other tasks.
                    let patience = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u32;
                    tokio::select! {
                        biased;
                        decision = large.check(("drop", at)).cost(Cost::new(cost)) => {
                            let left = decision.expect("a decision").states().next().expect("a state").remaining();
                            wrong += u64::from(left != AMOUNT - cost);
                        }
                        () = turns(patience) => dropped += 1,
                    }
                }
                (dropped, wrong)
            })
        })
        .collect();
    let (mut dropped, mut wrong) = (0, 0);
    for task in tasks {
        let (its, errors) = task.await.expect("a task");
        (dropped, wrong) = (dropped + its, wrong + errors);
    }
    decides(&large, "acme").await;
    until("the connections that were", async || open() <= before).await;
    let asked = format!("wrong replies, {dropped} futures dropped of {calls}");
    findings.count(&asked, wrong as f64).at_most(0.0);
    let leaked = open().saturating_sub(before) as f64;
    findings
        .count("connections and files that leaked", leaked)
        .at_most(0.0);
    findings.keys(server.keys_and_expires());
    findings
}

/// Yields this many times to the other tasks; above seven, for ever.
pub(super) async fn turns(count: u32) {
    if count > 7 {
        std::future::pending::<()>().await;
    }
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn keys(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let store = RedisStore::open(format!("redis://127.0.0.1:{}", ports::free())).expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    until("the store to be away", async || {
        sample(&large, "acme").await.reason.is_some() && !store.is_available()
    })
    .await;
    let (before, keys) = (memory(), pace.of(10_000_000_u64, 1_000_000));
    let (mut parts, ()) = http::Request::new(()).into_parts();
    let extractor = PeerIp;
    let mut early = before;
    for at in 0..keys {
        if at == keys / 10 * 4 {
            early = memory();
        }
        // Each in a network of its own.
        let address = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(at) << 64 | 1);
        parts.extensions.insert(SocketAddr::from((address, 50_000)));
        let key = extractor.extract(&parts).ok().flatten().expect("a key");
        assert!(
            large
                .check(key)
                .await
                .is_ok_and(|decision| decision.is_allowed())
        );
        if at % 10_000 == 0 {
            tokio::time::sleep(Duration::ZERO).await;
        }
    }
    let after = memory();
    let grown = (after - before).max(0.0);
    let asked = format!("growth of the process over {keys} keys");
    findings.figure(&asked, grown, " MiB").at_most(32.0);
    findings.figure(
        "of that, over the last six tenths",
        (after - early).max(0.0),
        " MiB",
    );
    findings
}
