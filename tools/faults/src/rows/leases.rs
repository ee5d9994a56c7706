//! Rows: leased units whose replicas are killed or stopped, whose connections are cut, or whose server loses its state.

use std::time::Duration;

use tollgate_test_support::{LEASED_PER_SECOND, LeaseReplicas, MOST_LEASED, most_above};
use tollgate_tests::{RedisSentinels, RedisServer, WallClock, server::keys_of};

use crate::{
    findings::{Findings, Target},
    load::part,
    pace::Pace,
};

/// The word that makes this program one of the replicas.
pub(crate) const REPLICA: &str = "leases";

/// The time by which the server's clock jumps: longer than the time in which all units accrue.
const JUMP: Duration = Duration::from_secs(3_600);

/// The length of a generation while Sentinels replace the server: units outlast the fail-over.
const LONG_GENERATION: Duration = Duration::from_secs(30);

/// The times at which the replicas are disturbed in a round.
const DISTURBANCES: usize = 3;

/// Runs one of the replicas.
pub(crate) fn replica(url: &str) {
    tollgate_test_support::run_lease_replica(url);
}

fn generation(pace: Pace) -> Duration {
    pace.of(Duration::from_secs(1), Duration::from_millis(500))
}

fn start(url: &str, generation: Duration) -> LeaseReplicas {
    let replicas = LeaseReplicas::start(|| part(REPLICA, url), generation);
    // From here on, each unit that is granted too much is above the bound.
    replicas.wait_until_drained();
    replicas
}

/// The sum of rounds.
#[derive(Default)]
struct Rounds {
    admitted: usize,
    leased: usize,
    /// The worst of the rounds. `None` before the first.
    above: Option<i64>,
    keys: (u64, u64),
}

impl Rounds {
    fn add(&mut self, (keys, expiring): (u64, u64), replicas: LeaseReplicas) {
        let admissions = &replicas.end();
        self.admitted += admissions.len();
        self.leased += admissions.iter().filter(|admission| admission.is_leased).count();
        self.above = self.above.max(Some(most_above(admissions, LEASED_PER_SECOND, LEASED_PER_SECOND)));
        self.keys = (self.keys.0 + keys, self.keys.1 + expiring);
    }

    /// Reports the rounds, in which `most` units more than the bound may have been admitted.
    fn findings(&self, most: u64) -> Findings {
        let mut findings = Findings::default();
        let above = self.above.unwrap_or_default();
        findings.figure("admitted above the bound, in any span", Target::AtMost(most as f64), above as f64, "");
        let share = 100.0 * self.leased as f64 / self.admitted.max(1) as f64;
        findings.figure(format!("leased, of {} admitted", self.admitted), Target::AtLeast(10.0), share, " %");
        findings.keys(self.keys);
        findings
    }
}

/// Runs rounds on a thread that may block.
async fn rounds(pace: Pace, round: impl Fn(&mut Rounds) + Send + 'static) -> Rounds {
    let all = move || {
        let mut sum = Rounds::default();
        for _ in 0..pace.of(3, 1) {
            round(&mut sum);
        }
        sum
    };
    tokio::task::spawn_blocking(all).await.expect("the rounds end")
}

pub(super) async fn killed(pace: Pace) -> Findings {
    let round = move |sum: &mut Rounds| {
        let server = RedisServer::start();
        let mut replicas = start(&server.url_at(server.addr()), generation(pace));
        replicas.kill(0);
        replicas.wait_until_drained();
        sum.add(server.keys_and_expires(), replicas);
    };
    rounds(pace, round).await.findings(0)
}

pub(super) async fn stopped(pace: Pace) -> Findings {
    let round = move |sum: &mut Rounds| {
        let server = RedisServer::start();
        let replicas = start(&server.url_at(server.addr()), generation(pace));
        for at in 0..DISTURBANCES {
            replicas.stop(at, &server);
        }
        sum.add(server.keys_and_expires(), replicas);
    };
    rounds(pace, round).await.findings(0)
}

pub(super) async fn cut(pace: Pace) -> Findings {
    let round = move |sum: &mut Rounds| {
        let server = RedisServer::start();
        let replicas = start(&server.url_at(server.addr()), generation(pace));
        for _ in 0..3 * DISTURBANCES {
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            replicas.wait_until_drained();
        }
        sum.add(server.keys_and_expires(), replicas);
    };
    rounds(pace, round).await.findings(0)
}

pub(super) async fn lost(pace: Pace) -> Findings {
    let round = move |sum: &mut Rounds| {
        let server = RedisServer::start();
        let replicas = start(&server.url_at(server.addr()), generation(pace));
        server.command(&["FLUSHALL"]);
        replicas.wait_until_drained();
        sum.add(server.keys_and_expires(), replicas);
    };
    rounds(pace, round).await.findings(LEASED_PER_SECOND + MOST_LEASED)
}

pub(super) async fn server_clock(pace: Pace) -> Findings {
    let jump = move |jump: fn(&WallClock, Duration)| {
        move |sum: &mut Rounds| {
            let clock = WallClock::new();
            let server = RedisServer::builder().clock(&clock).start();
            let replicas = start(&server.url_at(server.addr()), generation(pace));
            jump(&clock, JUMP);
            replicas.wait_until_drained();
            sum.add(server.keys_and_expires(), replicas);
        }
    };
    let mut findings = Findings::default();
    for (name, most, sum) in [
        ("forward", LEASED_PER_SECOND + MOST_LEASED, rounds(pace, jump(WallClock::forward)).await),
        ("back", 0, rounds(pace, jump(WallClock::back)).await),
    ] {
        let above = sum.above.unwrap_or_default() as f64;
        findings.figure(format!("{name}: admitted above the bound"), Target::AtMost(most as f64), above, "");
        findings.keys(sum.keys);
    }
    findings
}

pub(super) async fn fail_over(pace: Pace) -> Findings {
    let replaced = move |before: fn(&RedisSentinels)| {
        move |sum: &mut Rounds| {
            let sentinels = RedisSentinels::start(false);
            let replicas = start(&sentinels.url(), LONG_GENERATION);
            replicas.fail_over(&sentinels, before);
            sum.add(sentinels.risen().map(keys_of).expect("another master"), replicas);
        }
    };
    let mut findings = Findings::default();
    for (name, most, sum) in [
        ("with its state", 0, rounds(pace, replaced(|_| {})).await),
        (
            "without its state",
            LEASED_PER_SECOND + MOST_LEASED,
            rounds(pace, replaced(RedisSentinels::empty_replicas)).await,
        ),
    ] {
        let above = sum.above.unwrap_or_default() as f64;
        findings.figure(format!("{name}: admitted above the bound"), Target::AtMost(most as f64), above, "");
        findings.keys(sum.keys);
    }
    findings
}
