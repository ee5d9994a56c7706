//! Three processes share four permits. One of them holds half, and is killed or stopped.

use std::{
    env,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tollgate::{Concurrency, OnLoss, RedisStore};
use tollgate_test_support::PATIENCE;
use tollgate_tests::{Process, RedisServer, wait};

use crate::{held, replica, take};

const KEY: &str = "tollgate:{acme}:jobs:p1";

const FOUR: Concurrency = Concurrency::new("jobs", 4).life(Duration::from_secs(2)).on_loss(OnLoss::Cancel);

/// Runs as one of the processes, which the tests below start. Does nothing in a usual run of the tests.
#[test]
fn worker() {
    let Ok(url) = env::var("PERMITS_URL") else { return };
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok()).expect("a number");
    let policy = if number("PERMITS_EXACT") == 1 { FOUR.exact() } else { FOUR };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limiter = replica(RedisStore::connect(url).await.expect("a store"), policy);
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..number("PERMITS_WORKERS") {
            let limiter = limiter.clone();
            workers.spawn(async move {
                loop {
                    if let Some(permit) = take(&limiter, "acme").await {
                        println!("work begins");
                        permit.run(std::future::pending::<()>()).await.expect_err("the work has no end");
                        println!("work is cancelled");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            });
        }
        println!("ready");
        workers.join_next().await;
    });
}

fn start(server: &RedisServer, workers: u32, is_exact: bool) -> Process {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command
        .args(["--exact", "processes::worker", "--nocapture"])
        .env("PERMITS_URL", server.url())
        .env("PERMITS_WORKERS", workers.to_string())
        .env("PERMITS_EXACT", u32::from(is_exact).to_string());
    Process::start(command, "ready")
}

fn begun(processes: &[&Process]) -> usize {
    processes.iter().map(|process| process.output().matches("work begins").count()).sum()
}

fn cancelled(process: &Process) -> usize {
    process.output().matches("work is cancelled").count()
}

/// Lets one process hold half of the permits and two others the rest, and ends or stops the first. The others get its
/// permits, and at no time does the server count more than four.
fn others_get_the_permits(
    is_exact: bool,
    disturb: impl FnOnce(&mut Process),
    after: impl FnOnce(&RedisServer, &Process),
) {
    let server = RedisServer::start();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let held = held(&server, KEY);
                if held.iter().sum::<u32>() > 4 {
                    is_over.store(true, Ordering::SeqCst);
                    panic!("more than four permits: {held:?}");
                }
                thread::yield_now();
            }
        });
        let mut first = start(&server, 2, is_exact);
        wait::until("the first process to hold half", PATIENCE, || begun(&[&first]) == 2);
        let others = [start(&server, 4, is_exact), start(&server, 4, is_exact)];
        wait::until("the others to hold the rest", PATIENCE, || begun(&[&others[0], &others[1]]) == 2);
        disturb(&mut first);
        wait::until("the others to hold all", PATIENCE, || begun(&[&others[0], &others[1]]) == 4);
        after(&server, &first);
        assert_eq!(others.iter().map(cancelled).sum::<usize>(), 0);
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn the_permits_of_a_killed_process_are_free_again_after_their_life() {
    for is_exact in [true, false] {
        others_get_the_permits(is_exact, Process::kill, |server, _| {
            assert_eq!(held(server, KEY).iter().sum::<u32>(), 4);
        });
    }
}

#[test]
fn a_process_that_was_stopped_for_a_life_cancels_its_work_when_it_goes_on() {
    let signal = |process: &Process, signal| {
        let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw).expect("a process number");
        kill_process(pid, signal).expect("it is our process");
    };
    for is_exact in [true, false] {
        others_get_the_permits(
            is_exact,
            |first| signal(first, Signal::STOP),
            |server, first| {
                signal(first, Signal::CONT);
                wait::until("the work to be cancelled", PATIENCE, || cancelled(first) == 2);
                assert_eq!(begun(&[first]), 2, "it gets no other permit");
                assert_eq!(held(server, KEY).iter().sum::<u32>(), 4);
            },
        );
    }
}
