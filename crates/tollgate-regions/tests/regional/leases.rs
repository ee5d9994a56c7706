//! Units that processes lease from the purse of their region: on real servers.
//! The rules of a lease are compared with the script in `agreement.rs`, and run over minutes in
//! `simulation.rs`.

use std::time::Duration;

use tollgate_core::Lease;
use tollgate_regions::{
    Durability, RegionFigures,
    inspect::{StoredHome, StoredPurse},
};
use tollgate_tests::{RedisServer, no_server, wait};

use super::region::{
    PATIENCE, Region, assert_bound, copy, delayed, drain, policy, spend, stored, sum,
};

/// Returns terms of this length.
fn terms(seconds: u64) -> Lease {
    Lease::new().generation(Duration::from_secs(seconds))
}

/// Checks in a process until it holds leased units.
async fn until_leased(process: &Region) {
    wait::until_async("leased units", PATIENCE, async || {
        for _ in 0..50 {
            process.check().await;
        }
        process.store.figures().leased > 0
    })
    .await;
}

fn purse(server: &RedisServer) -> StoredPurse {
    let value = stored(server, StoredPurse::SUFFIX).expect("a purse");
    StoredPurse::decode(&value).expect("a purse")
}

fn outstanding(home: &RedisServer) -> u64 {
    let value = stored(home, StoredHome::SUFFIX).expect("a home");
    StoredHome::decode(&value).expect("a home").outstanding()
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_processes_make_few_trips_and_admit_no_more_than_the_limit() {
    if no_server() {
        return;
    }
    let (home, servers) = (RedisServer::start(), [(); 2].map(|()| RedisServer::start()));
    let lines = [delayed(&home), delayed(&home)];
    // Two processes of one region, and one of another.
    let processes: Vec<_> = [0, 0, 1]
        .into_iter()
        .map(|at| {
            let (name, guard) = (format!("region {at}"), Durability::Trust);
            let (local, home) = (servers[at].url(), lines[at].url());
            Region::with(&name, &local, &home, guard, policy(terms(60)))
        })
        .collect();
    spend(&processes, 1_000).await;
    drain(&processes).await;
    assert_bound(&processes);
    let figures: Vec<_> = processes.iter().map(|it| it.store.figures()).collect();
    let saved: u64 = figures.iter().map(|it| it.trips_saved).sum();
    assert!(saved > 100, "{saved} of {}: {figures:?}", sum(&processes));
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_are_released_lie_in_the_purse_again() {
    if no_server() {
        return;
    }
    let (home, server) = (RedisServer::start(), RedisServer::start());
    let (local, there, guard) = (server.url(), home.url(), Durability::Trust);
    let process = Region::with("eu", &local, &there, guard, policy(terms(60)));
    until_leased(&process).await;
    assert!(purse(&server).leased(0) > 0);
    process.store.release_leases().await.expect("a release");
    assert_eq!(process.store.figures().leased, 0);
    // A call may be under way, which brings units, or takes reports along.
    wait::until("each unit in one place", PATIENCE, || {
        let purse = purse(&server);
        purse.leased(0) == 0 && outstanding(&home) == purse.free(0) + purse.unreported(0)
    });
    assert_bound(std::slice::from_ref(&process));
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_nobody_asks_for_go_back_by_themselves() {
    if no_server() {
        return;
    }
    let (home, server) = (RedisServer::start(), RedisServer::start());
    let (local, there, guard) = (server.url(), home.url(), Durability::Trust);
    let process = Region::with("eu", &local, &there, guard, policy(terms(4)));
    until_leased(&process).await;
    wait::until_async("an empty process", PATIENCE, async || {
        process.store.figures().leased == 0 && purse(&server).leased(0) == 0
    })
    .await;
}

/// The purse of the first server is void at its copy. What a process holds of it is in no purse.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_spends_what_it_holds_while_its_region_fails_over() {
    if no_server() {
        return;
    }
    let (home, old, new) = (
        RedisServer::start(),
        RedisServer::start(),
        RedisServer::start(),
    );
    let line = delayed(&home);
    copy(&new, &old);
    let region = |server: &RedisServer| {
        let (local, guard) = (server.url(), Durability::Trust);
        Region::with("eu", &local, &line.url(), guard, policy(terms(60)))
    };
    let first = region(&old);
    until_leased(&first).await;
    new.command(&["REPLICAOF", "NO", "ONE"]);
    old.pause();
    let RegionFigures { leased, .. } = first.store.figures();
    let before = first.admitted();
    for _ in 0..leased {
        assert!(first.check().await, "it holds units");
    }
    assert_eq!(first.admitted() - before, leased);
    old.resume();
    let regions = [first, region(&new)];
    drain(&regions).await;
    assert_bound(&regions);
}
