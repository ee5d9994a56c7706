//! A process that holds leased units of its region is killed, on real servers: nobody spends them, they
//! lapse, and the whole limit is there again.
//! The law for any number of processes that die is in `simulation.rs`.

use std::{
    env, io,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use tollgate_core::{Lease, Policy, Quota};
use tollgate_regions::Durability;
use tollgate_tests::{Process, RedisServer, no_server, wait};

use super::region::{PATIENCE, Region, UNITS, delayed, drain, policy, sum};

/// The URLs of both servers, and the name of the policy: for [`worker`].
const SERVERS: &str = "REGION_OF_WORKER";

/// The units that a process holds at least when it is killed: more than the checks that are under way
/// when a window ends.
const HELD: u64 = 16;

const PERIOD: Duration = Duration::from_secs(3);

/// The callers of each region.
const CALLERS: usize = 2;

fn terms() -> Lease {
    Lease::new().generation(Duration::from_millis(400))
}

/// Returns [`UNITS`] that never accrue, or a window of them.
fn policy_named(name: &str) -> Policy {
    match name {
        "never" => policy(terms()),
        _ => Policy::fixed_window("all", Quota::new(UNITS, PERIOD)).leased(terms().share(2)),
    }
}

fn region(name: &str, servers: [&str; 2], policy: &str) -> Region {
    let [local, home] = servers;
    Region::with(name, local, home, Durability::Trust, policy_named(policy))
}

/// Runs as the process that is killed, which the tests below start: it spends until it holds units, says
/// so, and stands still. Does nothing in a usual run of the tests.
#[test]
fn worker() {
    let Ok(words) = env::var(SERVERS) else {
        return;
    };
    let words: Vec<_> = words.split(' ').collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let process = region("eu", [words[0], words[1]], words[2]);
        wait::until_async("leased units", PATIENCE, async || {
            let holds = || process.store.figures().leased >= HELD;
            for _ in 0..200 {
                if process.check().await && holds() {
                    return true;
                }
            }
            false
        })
        .await;
        println!("holds units, spent={}.", process.admitted());
        // Nothing else of this process runs meanwhile: it gives nothing back, and carries no call on.
        io::stdin().read_line(&mut String::new()).expect("a line");
    });
}

/// Starts a process of the first region and kills it while it holds units. Returns what it has spent.
fn killed(local: &str, home: &str, policy: &str) -> u64 {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command
        .args(["--exact", "killed::worker", "--nocapture"])
        .env(SERVERS, format!("{local} {home} {policy}"));
    let mut process = Process::start_listening(command, "holds units");
    let (_, spent) = process.ready_line().split_once("spent=").expect("a number");
    let spent = spent.split('.').next().and_then(|it| it.parse().ok());
    process.kill();
    spent.expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn units_of_a_killed_process_are_spent_by_nobody_else() {
    if no_server() {
        return;
    }
    let (home, servers) = (RedisServer::start(), [(); 2].map(|()| RedisServer::start()));
    let lines = [delayed(&home), delayed(&home)];
    let spent = killed(&servers[0].url(), &lines[0].url(), "never");
    let at = |at: usize| {
        let name = ["eu", "us"][at];
        region(name, [&servers[at].url(), &lines[at].url()], "never")
    };
    let regions = [at(0), at(1)];
    drain(&regions).await;
    let others = sum(&regions);
    assert!(spent > 0 && others > UNITS / 4, "{spent}, {others}");
    assert!(
        spent + others + HELD <= UNITS,
        "{spent} before the kill and {others} after it, of {UNITS}"
    );
}

/// Returns the time of the system, which is that of the servers.
fn now() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("a time after 1970")
}

fn window(at: Duration) -> u64 {
    at.as_secs() / PERIOD.as_secs()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_a_later_window_is_used_whole_and_none_is_exceeded() {
    if no_server() {
        return;
    }
    let (home, servers) = (RedisServer::start(), [(); 2].map(|()| RedisServer::start()));
    let home = home.url();
    assert!(killed(&servers[0].url(), &home, "window") > 0);
    let (before, begun) = (window(now()), Instant::now());
    // When each check was made and answered that was admitted.
    let admitted: Arc<Mutex<Vec<(Duration, Duration)>>> = Arc::default();
    let is_whole = |window_: u64, admitted: &[(Duration, Duration)]| {
        let may_be_in =
            |it: &&(Duration, Duration)| window(it.0) <= window_ && window(it.1) >= window_;
        admitted.iter().filter(may_be_in).count() as u64 >= UNITS
    };
    let mut callers = tokio::task::JoinSet::new();
    for (name, server) in ["eu", "us"].into_iter().zip(&servers) {
        let region = region(name, [&server.url(), &home], "window");
        for _ in 0..CALLERS {
            let (region, admitted) = (region.clone(), Arc::clone(&admitted));
            callers.spawn(async move {
                loop {
                    let made = now();
                    if region.check().await {
                        admitted.lock().expect("no panic").push((made, now()));
                    } else {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                }
            });
        }
    }
    let mut seen = before;
    loop {
        // A window is over, so that what it has admitted is known.
        wait::until_async("the next window", PATIENCE, async || {
            window(now()) > seen + 1
        })
        .await;
        seen = window(now()) - 1;
        let admitted = admitted.lock().expect("no panic").clone();
        for window_ in before..=seen {
            let is_in =
                |it: &&(Duration, Duration)| window(it.0) == window_ && window(it.1) == window_;
            let count = admitted.iter().filter(is_in).count() as u64;
            assert!(count <= UNITS, "{count} in a window of {UNITS}");
        }
        // Those that may belong to either of two windows are fewer than what was held.
        if (before + 1..=seen).any(|window_| is_whole(window_, &admitted)) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "no window was used whole");
    }
    callers.shutdown().await;
}
