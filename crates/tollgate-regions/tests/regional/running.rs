//! A running load: the bound over any span while units accrue, with skewed and moving loads and lost calls, and how often a thousand processes call
//! the home.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tollgate_core::{Lease, Policy, Quota};
use tollgate_regions::Durability;
use tollgate_tests::{
    RedisServer, no_server,
    proxy::Mode,
    spans::{Admitted, above},
};

use super::region::{PATIENCE, Region, TRIP, delayed};

/// The units that accrue in a second, and the burst.
const RATE: u64 = 1_000;

/// Returns the callers of each region, after so many admitted units. All of them ask as fast as they are
/// answered.
type Load = fn(u64) -> [usize; 3];

/// The most callers of a region.
const CALLERS: usize = 18;

fn skewed(_: u64) -> [usize; 3] {
    [CALLERS, 2, 1]
}

/// Nine tenths of all callers move to another region with each second's worth of units.
fn moving(admitted: u64) -> [usize; 3] {
    let mut callers = [1; 3];
    callers[(admitted / RATE) as usize % 3] = CALLERS;
    callers
}

/// Runs a load until each region was admitted units, and all together the bound of some seconds. Of a
/// hundred calls of the home, and of a hundred answers, so many are lost.
async fn run(load: Load, loss: u8) {
    let (home, servers) = (RedisServer::start(), [(); 3].map(|()| RedisServer::start()));
    let lines = [(); 3].map(|()| delayed(&home));
    lines
        .iter()
        .for_each(|line| line.set(Mode::Lose(TRIP, loss)));
    let policy = Policy::token_bucket("all", Quota::per_second(RATE)).leased(Lease::new().share(2));
    let (begun, each) = (
        Instant::now(),
        Arc::new([(); 3].map(|()| AtomicU64::new(0))),
    );
    let seen: Arc<Mutex<Vec<Admitted>>> = Arc::default();
    let mut tasks = Vec::new();
    for at in 0..3 {
        let (name, there) = (format!("region {at}"), lines[at].url());
        // The callers of a process share a store, and with it leased units.
        let process = || {
            let (local, guard) = (servers[at].url(), Durability::Trust);
            Region::with(&name, &local, &there, guard, policy.clone())
        };
        let processes = [process(), process()];
        for caller in 0..CALLERS {
            let region = processes[caller % 2].clone();
            let (seen, each) = (Arc::clone(&seen), Arc::clone(&each));
            tasks.push(tokio::spawn(async move {
                loop {
                    let counts = [0, 1, 2].map(|at: usize| each[at].load(Relaxed));
                    let sum: u64 = counts.iter().sum();
                    if sum >= 5 * RATE && counts.iter().all(|count| *count > 0) {
                        return;
                    }
                    assert!(
                        begun.elapsed() < PATIENCE,
                        "{counts:?} {:?}",
                        region.store.figures()
                    );
                    let made = begun.elapsed();
                    if caller < load(sum)[at] && region.check().await {
                        each[at].fetch_add(1, Relaxed);
                        let answered = begun.elapsed();
                        seen.lock().expect("no panic").push((made, answered));
                    } else {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("a caller");
    }
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    assert!(seen.len() as u64 >= 5 * RATE);
    assert_eq!(above(seen, RATE, RATE), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_span_of_a_skewed_load_has_more_than_the_burst_and_what_accrues() {
    if no_server() {
        return;
    }
    run(skewed, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_span_of_a_load_that_moves_has_more_than_the_burst_and_what_accrues() {
    if no_server() {
        return;
    }
    run(moving, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_span_has_more_than_the_burst_and_what_accrues_while_a_tenth_of_calls_and_answers_is_lost()
 {
    if no_server() {
        return;
    }
    run(skewed, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_processes_call_the_home_as_often_as_one() {
    if no_server() {
        return;
    }
    let (home, server) = (RedisServer::start(), RedisServer::start());
    let policy =
        Policy::token_bucket("all", Quota::per_second(20_000)).leased(Lease::new().share(2));
    let region = |_| {
        let (local, there, guard) = (server.url(), home.url(), Durability::Trust);
        Region::with("eu", &local, &there, guard, policy.clone())
    };
    let processes: Arc<[Region]> = (0..1_000).map(region).collect();
    let begun = Instant::now();
    let callers = (0..50).map(|caller| {
        let processes = Arc::clone(&processes);
        tokio::spawn(async move {
            for round in 0..400 {
                processes[(caller + round * 50) % processes.len()]
                    .check()
                    .await;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("a caller");
    }
    let elapsed = begun.elapsed();
    let calls = home.calls("evalsha") + home.calls("eval");
    let figures = || processes.iter().map(|it| it.store.figures());
    let resent: u64 = figures().map(|it| it.resent).sum();
    let admitted: u64 = processes.iter().map(Region::admitted).sum();
    // A tenth of a second lies between two calls of a key, and a machine that stands still makes none.
    let most = elapsed.as_millis() as u64 / 100 + 2;
    assert!(
        calls <= most + resent,
        "{calls} in {elapsed:?}, {resent} sent again"
    );
    assert!(
        figures().filter(|it| it.calls > 0).count() > 1,
        "{calls} calls by one process"
    );
    assert!(
        admitted > 1_000 && calls * 4 < admitted,
        "{calls} calls, {admitted} admitted"
    );
}
