//! Processes whose own clocks are wrong, one after the other at one server: for the test and for
//! the fault suite.

use crate::limiters::decided_at;
use std::{
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate::{Cost, Policy, Quota, RedisStore, testing::ALGORITHMS};
use tollgate_tests::{Process, RedisServer, WallClock};

use crate::patient_limiter;

/// The error of the clock of each process, in microseconds.
pub const SKEWS: [[i64; 2]; 3] = [
    [1_000_000, -1_000_000],
    [3_600_000_000, -3_600_000_000],
    [-DAY, DAY],
];
const DAY: i64 = 86_400_000_000;

/// A little after the start of a day: far from every edge.
const START: Duration = Duration::from_secs(86_400 * 23_000 + 100);

/// Runs two processes with wrong clocks and returns a line for each of their decisions.
///
/// `program` has to call [`run_caller`] with its last argument, the URL of the server.
///
/// # Panics
///
/// When a process fails or its clock is not wrong as asked.
pub fn answers_under_skew(program: impl Fn() -> Command, skews: [i64; 2]) -> Vec<String> {
    let theirs = WallClock::new();
    let server = RedisServer::builder().clock(&theirs).start();
    let mut lines = Vec::new();
    // Between the processes units accrue, and the hour ends.
    for (at, skew_us) in [skews, skews].concat().into_iter().enumerate() {
        theirs.set(START + Duration::from_secs(1_300) * at as u32);
        let ours = WallClock::new();
        ours.set_offset_us(skew_us);
        let mut command = program();
        command.arg(server.url()).envs(ours.variables());
        let process = Process::start(command, "done");
        let output = process.output();
        let (clock, decisions): (Vec<_>, Vec<_>) =
            output.lines().partition(|line| line.starts_with("clock"));
        let its: f64 = clock[0]
            .split(' ')
            .nth(1)
            .and_then(|it| it.parse().ok())
            .expect("a time");
        let off = its - now() - skew_us as f64 / 1e6;
        assert!(
            off.abs() < 60.0,
            "the clock is {off} s away from where it was set"
        );
        lines.extend(
            decisions
                .into_iter()
                .filter(|line| *line != "done")
                .map(str::to_owned),
        );
    }
    lines
}

/// Runs one of the processes: prints its clock and its decisions, then waits to be killed.
///
/// # Panics
///
/// When the store does not decide.
pub fn run_caller(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        println!("clock {}", now());
        let store = RedisStore::connect(url).await.expect("a store");
        for algorithm in ALGORITHMS {
            let policy = Policy::try_new("p", algorithm, Quota::per_hour(20)).expect("a policy");
            let limiter = patient_limiter(store.clone(), policy);
            for cost in [1, 9, 6, 3, 1] {
                let decision = decided_at(&limiter, "acme", Cost::new(cost)).await;
                let word = if decision.is_allowed() {
                    "allowed"
                } else {
                    "denied"
                };
                let remaining = decision.states().next().expect("a state").remaining();
                println!("{algorithm:?} {cost} {word} {remaining}");
            }
        }
        println!("done");
        // Until it is killed.
        std::future::pending::<()>().await;
    });
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is later than 1970")
        .as_secs_f64()
}
