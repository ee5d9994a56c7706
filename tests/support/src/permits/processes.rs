//! Three processes that share four permits. The first one works with half of them.

use std::{env, process::Command, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tollgate::{Concurrency, OnLoss, RedisStore};
use tollgate_tests::{Process, wait};

use super::{
    journal::{Span, now_us},
    replica::{closed_permits, take_permit},
};
use crate::PATIENCE;

/// The permits that the processes share.
pub const AT_ONCE: usize = 4;

/// The deadline of the processes.
const DEADLINE: Duration = Duration::from_secs(1);

/// The pause between two attempts to take a permit.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause between two steps of the work.
const STEP: Duration = Duration::from_millis(5);

const LIFE: &str = "PERMITS_LIFE_MS";
const EXACT: &str = "PERMITS_EXACT";
const WORKERS: &str = "PERMITS_WORKERS";

/// Three processes that share [`AT_ONCE`] permits and cancel their work when they lose them. The first one works with half
/// of the permits, and the others work with the rest and ask for more.
///
/// Dropping the value kills the processes.
#[derive(Debug)]
pub struct SharedPermits {
    processes: [Process; 3],
    killed_us: [Option<u64>; 3],
}

impl SharedPermits {
    /// Starts the processes, and waits until all permits are in use.
    ///
    /// Each command has to call [`run_permit_worker`] with the URL of the server.
    ///
    /// # Panics
    ///
    /// When a process does not start.
    #[must_use]
    pub fn start(program: impl Fn() -> Command, life: Duration, is_exact: bool) -> Self {
        let start = |workers: usize| {
            let mut command = program();
            command
                .env(LIFE, life.as_millis().to_string())
                .env(EXACT, u32::from(is_exact).to_string())
                .env(WORKERS, workers.to_string());
            Process::start(command, "ready")
        };
        let first = start(AT_ONCE / 2);
        wait::until("the first process to work with half of the permits", PATIENCE, || at_work(&first) >= AT_ONCE / 2);
        let this = Self { processes: [first, start(AT_ONCE), start(AT_ONCE)], killed_us: [None; 3] };
        wait::until("the others to work with the rest", PATIENCE, || this.others_at_work() >= AT_ONCE / 2);
        this
    }

    /// Kills the first process.
    pub fn kill_first(&mut self) {
        self.killed_us[0] = Some(now_us());
        self.processes[0].kill();
    }

    /// Stops the first process.
    ///
    /// # Panics
    ///
    /// When the process has ended.
    pub fn stop_first(&self) {
        self.signal_first(Signal::STOP);
    }

    /// Lets the first process go on.
    ///
    /// # Panics
    ///
    /// When the process has ended.
    pub fn resume_first(&self) {
        self.signal_first(Signal::CONT);
    }

    fn signal_first(&self, signal: Signal) {
        let pid = i32::try_from(self.processes[0].pid()).ok().and_then(Pid::from_raw).expect("a process number");
        kill_process(pid, signal).expect("the process runs");
    }

    /// Returns how many pieces of work each process has in progress. The output of the processes may lag behind.
    #[must_use]
    pub fn at_work(&self) -> [usize; 3] {
        self.processes.each_ref().map(at_work)
    }

    /// Returns how many pieces of work the second and the third process have in progress.
    #[must_use]
    pub fn others_at_work(&self) -> usize {
        self.at_work()[1..].iter().sum()
    }

    /// Returns how many pieces of work each process has cancelled.
    #[must_use]
    pub fn cancelled(&self) -> [usize; 3] {
        self.processes.each_ref().map(|process| count(process, "work ends "))
    }

    /// Kills all processes, and returns their work.
    ///
    /// # Panics
    ///
    /// When a process has printed something else than its work.
    #[must_use]
    pub fn end(mut self) -> Vec<Span> {
        let end_us = now_us();
        let mut spans = Vec::new();
        for (process, killed_us) in self.processes.iter_mut().zip(self.killed_us) {
            process.kill();
            spans.extend(spans_of(&process.output(), killed_us.unwrap_or(end_us)));
        }
        spans
    }
}

fn at_work(process: &Process) -> usize {
    count(process, "work begins ") - count(process, "work ends ")
}

fn count(process: &Process, line: &str) -> usize {
    process.output().matches(line).count()
}

/// Reads the work of a process that was killed at this time.
fn spans_of(output: &str, killed_us: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    for line in output.lines().filter(|line| line.starts_with("work ")) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).expect("a number");
        match words[1] {
            "begins" => spans.push(Span { from_us: number(2), to_us: killed_us.max(number(2)) }),
            _ => {
                let ended = spans.iter_mut().find(|span| span.from_us == number(2) && span.to_us >= killed_us);
                ended.expect("work that began").to_us = number(3);
            }
        }
    }
    spans
}

/// Runs one of the processes: takes permits and works with each until it is lost, until the process is killed.
///
/// # Panics
///
/// When the server is away at the start, or the process was not started by [`SharedPermits`].
pub fn run_permit_worker(url: &str) {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    let policy =
        Concurrency::new("jobs", AT_ONCE as u32).life(Duration::from_millis(number(LIFE))).on_loss(OnLoss::Cancel);
    let policy = if number(EXACT) == 1 { policy.exact() } else { policy };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = RedisStore::connect(url).await.expect("a store");
        let limiter = closed_permits(store, policy, DEADLINE);
        let mut workers = JoinSet::new();
        for _ in 0..number(WORKERS) {
            let limiter = limiter.clone();
            workers.spawn(async move {
                loop {
                    if let Some(permit) = take_permit(&limiter).await {
                        // The work has no end.
                        let _ = permit.run(work()).await;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        println!("ready");
        workers.join_next().await;
    });
}

/// Works, and prints the times of the first step and of the last one.
async fn work() {
    struct Work(Span);
    impl Drop for Work {
        fn drop(&mut self) {
            println!("work ends {} {}", self.0.from_us, self.0.to_us);
        }
    }
    let from_us = now_us();
    println!("work begins {from_us}");
    let mut work = Work(Span { from_us, to_us: from_us });
    loop {
        tokio::time::sleep(STEP).await;
        work.0.to_us = now_us();
    }
}
