//! Row: callers of two processes wait for more turns in a queue than there are.

use std::time::Duration;

use tollgate_test_support::Crowd;
use tollgate_tests::RedisServer;

use super::Pace;
use crate::{
    findings::Findings,
    load::{blocking, part},
};

/// The word that makes this program one of the processes.
pub(super) const PROCESS: &str = "crowd";

/// The span over which two processes get their shares.
const SHARED: Duration = Duration::from_secs(5);

pub(super) async fn shared(pace: Pace) -> Findings {
    const CALLERS: usize = 32;
    let mut findings = Findings::default();
    for max_wait_ms in [40, 100, 1_000] {
        let crowd = Crowd {
            processes: 2,
            callers: CALLERS,
            max_wait: Duration::from_millis(max_wait_ms),
            pause: Crowd::pause_of(CALLERS, 20.0),
            span: pace.of(Duration::from_secs(20), Duration::from_secs(10)),
        };
        let turns = blocking(move || {
            let server = RedisServer::start();
            crowd.run(|| part(PROCESS, &server.url_at(server.addr())))
        })
        .await;
        let wait = format!("longest wait {max_wait_ms} ms");
        let asked = format!("{wait}: greatest share of a process, over any {SHARED:?}");
        findings.at_most(65.0, asked, 100.0 - turns.least_share(SHARED), "%");
        let unused = 100.0 - turns.share_of_time();
        findings.at_most(5.0, format!("{wait}: turns that stay unused"), unused, "%");
    }
    findings
}
