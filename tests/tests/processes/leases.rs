//! The bound of a leased key over four processes, while one is killed, one stands still, and connections are cut.

use std::time::Duration;

use tollgate_test_support::{LEASED_PER_SECOND, LeaseReplicas, MOST_LEASED, most_above};
use tollgate_tests::{Process, RedisServer};

const GENERATION: Duration = Duration::from_millis(500);

fn start(server: &RedisServer) -> LeaseReplicas {
    let program = || {
        let mut command = Process::example("lessee");
        command.env("URL", server.url());
        command
    };
    LeaseReplicas::start(program, GENERATION)
}

#[test]
fn four_processes_never_exceed_the_bound_when_one_is_killed_one_stands_still_and_connections_are_cut() {
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
    let leased = admissions.iter().filter(|admission| admission.is_leased).count();
    let above = most_above(&admissions, LEASED_PER_SECOND, LEASED_PER_SECOND);
    println!("{} admitted, {leased} of them leased, {above} above the bound", admissions.len());
    assert!(leased > 500, "{leased} of {} leased", admissions.len());
    assert!(above <= 0, "{above} units above the bound");
}

#[test]
fn a_server_that_loses_its_state_adds_one_burst_and_what_was_leased() {
    let server = RedisServer::start();
    let replicas = start(&server);
    replicas.wait_until_drained();
    server.kill();
    server.restart();
    replicas.wait_until_drained();
    let admissions = replicas.end();
    let above = most_above(&admissions, LEASED_PER_SECOND, LEASED_PER_SECOND);
    let most = (LEASED_PER_SECOND + MOST_LEASED) as i64;
    println!("{} admitted, {above} above the bound of one state, of {most}", admissions.len());
    assert!(above <= most, "{above} units above the bound");
}
