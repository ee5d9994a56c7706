//! The bound of a leased key over four processes, while one is killed, one stands still, and
//! connections are cut.

use std::time::Duration;

use tollgate_test_support::{LEASED_PER_SECOND, LeaseReplicas, MOST_LEASED, most_above};
#[cfg(target_os = "linux")]
use tollgate_tests::WallClock;
use tollgate_tests::{Process, RedisServer};

const GENERATION: Duration = Duration::from_millis(500);

/// The units of a new state, and those that were leased of the old one.
const MOST_ABOVE: i64 = (LEASED_PER_SECOND + MOST_LEASED) as i64;

fn start(server: &RedisServer) -> LeaseReplicas {
    let program = || {
        let mut command = Process::example("lessee");
        command.env("URL", server.url());
        command
    };
    LeaseReplicas::start(program, GENERATION)
}

#[test]
fn four_processes_never_exceed_the_bound_when_one_is_killed_one_stands_still_and_connections_are_cut()
 {
    let server = RedisServer::start();
    let mut replicas = start(&server);
    replicas.wait_until_drained();
    replicas.kill(0);
    replicas.wait_until_drained();
    replicas.stop(1, &server);
    for _ in 0..5 {
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        replicas.wait_until_drained();
    }
    let admissions = replicas.end();
    let leased = admissions
        .iter()
        .filter(|admission| admission.is_leased)
        .count();
    let above = most_above(&admissions, LEASED_PER_SECOND, LEASED_PER_SECOND);
    assert!(leased > 500, "{leased} of {} leased", admissions.len());
    assert!(above <= 0, "{above} units above the bound");
}

/// Returns the units above the bound of one state that four processes were admitted while `disturb`
/// happened.
fn above(server: &RedisServer, disturb: impl FnOnce()) -> i64 {
    let replicas = start(server);
    replicas.wait_until_drained();
    disturb();
    replicas.wait_until_drained();
    most_above(&replicas.end(), LEASED_PER_SECOND, LEASED_PER_SECOND)
}

#[test]
fn a_server_that_loses_its_state_adds_one_burst_and_what_was_leased() {
    let server = RedisServer::start();
    let above = above(&server, || {
        server.kill();
        server.restart();
    });
    assert!(above <= MOST_ABOVE, "{above} units above the bound");
}

#[cfg(target_os = "linux")]
#[test]
fn a_clock_that_jumps_forward_adds_one_burst_and_what_was_leased_and_one_that_jumps_back_adds_nothing()
 {
    // Longer than the time in which all units accrue.
    const JUMP: Duration = Duration::from_secs(3_600);
    for (jump, most) in [
        (WallClock::forward as fn(&WallClock, Duration), MOST_ABOVE),
        (WallClock::back, 0),
    ] {
        let clock = WallClock::new();
        let server = RedisServer::builder().clock(&clock).start();
        let above = above(&server, || jump(&clock, JUMP));
        assert!(above <= most, "{above} units above the bound, of {most}");
    }
}
