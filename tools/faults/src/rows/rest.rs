//! Row: a connection that a middle box forgot while nobody used it. The server is healthy all the
//! time.

use std::time::Duration;

use tollgate::{Outage, RedisStore};
use tollgate_tests::{Proxy, RedisServer};

use crate::{
    findings::Findings,
    load::{LARGE, decides, limiter, millis, sample},
    pace::Pace,
};

/// Longer than the server keeps a connection that is not used: it looks about once a second.
const REST: Duration = Duration::from_millis(3_500);

pub(super) async fn forgotten(pace: Pace) -> Findings {
    let mut findings = Findings::default();
    let server = RedisServer::start();
    let (mut lost, mut longest, mut dials) = (0, Duration::ZERO, 0);
    // One check comes soon after the box forgot the connection, the other when a PING has found
    // out.
    for rest in [Duration::ZERO, Duration::from_secs(8)] {
        for _ in 0..pace.of(5, 1) {
            let proxy = Proxy::start(server.addr());
            // The count of the replicas would use the connection every other second.
            let store = RedisStore::connect(proxy.url()).await.expect("a store");
            let large = limiter(&store, LARGE, Outage::local(1));
            decides(&large, "acme").await;
            tokio::time::sleep(REST).await;
            proxy.forget_all();
            tokio::time::sleep(rest).await;
            let first = sample(&large, "acme").await;
            let second = sample(&large, "acme").await;
            lost += u32::from(first.reason.is_some()) + u32::from(second.reason.is_some());
            longest = longest.max(first.took);
            dials = dials.max(proxy.accepted() - 1);
        }
    }
    findings
        .count("checks decided without a healthy store", f64::from(lost))
        .at_most(0.0);
    findings
        .ms("longest first check", millis(longest))
        .at_most(50.0);
    findings
        .count("new connections, most", dials as f64)
        .at_most(1.0);
    findings.keys(server.keys_and_expires());
    findings
}
