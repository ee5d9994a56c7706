//! A running load: the bound over any span while units accrue, and how often a thousand processes call
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
use tollgate_tests::{RedisServer, no_server};

use super::region::{PATIENCE, Region, delayed};

/// The units that accrue in a second, and the burst.
const RATE: u64 = 1_000;

/// An admitted check: when it was made, and when it was answered. It was decided between both.
type Admitted = (Duration, Duration);

/// Returns how many units were admitted beyond the bound in the worst span.
fn above(mut admitted: Vec<Admitted>) -> u64 {
    admitted.sort_unstable();
    let mut worst = 0;
    // Each span begins with a check. One of fifty shows as much.
    for first in (0..admitted.len()).step_by(50) {
        let begin = admitted[first].0;
        let mut ends: Vec<_> = admitted[first..].iter().map(|it| it.1 - begin).collect();
        ends.sort_unstable();
        for (count, span) in (1..).zip(ends) {
            // The clock of the home may be faster by a thousandth.
            let accrued = span.as_secs_f64() * RATE as f64 * 1.001;
            let most = RATE + accrued as u64 + 1;
            worst = worst.max(u64::saturating_sub(count, most));
        }
    }
    worst
}

#[tokio::test(flavor = "multi_thread")]
async fn no_span_of_a_running_load_has_more_than_the_burst_and_what_accrues() {
    if no_server() {
        return;
    }
    let (home, servers) = (RedisServer::start(), [(); 3].map(|()| RedisServer::start()));
    let lines = [(); 3].map(|()| delayed(&home));
    let policy = Policy::token_bucket("all", Quota::per_second(RATE)).leased(Lease::new().share(2));
    let (begun, sum) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let seen: Arc<Mutex<Vec<Admitted>>> = Arc::default();
    let mut tasks = Vec::new();
    // Of the processes of a region, some share a store, and with it their leased units.
    for (at, callers) in [(0, 18), (1, 2), (2, 1)] {
        for process in 0..2 {
            let name = format!("region {at}");
            let (local, there) = (servers[at].url(), lines[at].url());
            let region = Region::with(&name, &local, &there, Durability::Trust, policy.clone());
            for _ in process..callers {
                let (region, seen, sum) = (region.clone(), Arc::clone(&seen), Arc::clone(&sum));
                tasks.push(tokio::spawn(async move {
                    while sum.load(Relaxed) < 5 * RATE {
                        assert!(begun.elapsed() < PATIENCE, "{:?}", region.store.figures());
                        let made = begun.elapsed();
                        if region.check().await {
                            sum.fetch_add(1, Relaxed);
                            let answered = begun.elapsed();
                            seen.lock().expect("no panic").push((made, answered));
                        } else {
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                    }
                }));
            }
        }
    }
    for task in tasks {
        task.await.expect("a caller");
    }
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    assert!(seen.len() as u64 >= 5 * RATE);
    assert_eq!(above(seen), 0);
    let burst = vec![(Duration::ZERO, Duration::ZERO); RATE as usize + 10];
    assert_eq!(above(burst), 9, "one may have accrued");
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
