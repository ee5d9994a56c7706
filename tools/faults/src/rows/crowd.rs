//! Rows: callers of two processes wait for more turns in a queue than there are.

use std::time::Duration;

use tollgate_test_support::{Crowd, Turns};
use tollgate_tests::RedisServer;

use crate::{findings::Findings, load::part, pace::Pace};

/// The word that makes this program one of the processes.
pub(crate) const PROCESS: &str = "crowd";

/// The share of the turns that callers use at least, in percent: law 17.
const LEAST: f64 = 95.0;

/// The span over which two processes get their shares.
const SHARED: Duration = Duration::from_secs(5);

/// Runs one of the processes.
pub(crate) fn process(url: &str) {
    tollgate_test_support::run_crowd(url);
}

/// Runs a crowd at a server of its own, on a thread that may block.
async fn run(crowd: Crowd) -> (Turns, (u64, u64)) {
    let run = move || {
        let server = RedisServer::start();
        let turns = crowd.run(|| part(PROCESS, &server.url_at(server.addr())));
        (turns, server.keys_and_expires())
    };
    tokio::task::spawn_blocking(run)
        .await
        .expect("the crowd ends")
}

pub(super) async fn shared(pace: Pace) -> Findings {
    const CALLERS: usize = 32;
    let mut findings = Findings::default();
    for max_wait_ms in [40, 100, 1_000] {
        let max_wait = Duration::from_millis(max_wait_ms);
        let span = pace.of(Duration::from_secs(20), Duration::from_secs(10));
        let crowd = Crowd {
            processes: 2,
            callers: CALLERS,
            max_wait,
            pause: Crowd::pause_of(CALLERS, 20.0),
            span,
        };
        let (turns, keys) = run(crowd).await;
        let asked =
            format!("longest wait {max_wait:?}: least share of a process, over any {SHARED:?}");
        findings
            .percent(asked, turns.least_share(SHARED))
            .at_least(35.0);
        findings
            .percent("the same: turns used", turns.share_of_time())
            .at_least(LEAST);
        findings.keys(keys);
    }
    findings
}
