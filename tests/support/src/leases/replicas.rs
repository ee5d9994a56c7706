//! Four processes that lease the units of one key.

use std::{env, process::Command, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tollgate::{Lease, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_tests::{Process, wait};

use super::bound::Admission;
use crate::{PATIENCE, permits::now_us};

/// The burst of the key, and the units that accrue in a second.
pub const LEASED_PER_SECOND: u64 = 400;

/// The processes.
const REPLICAS: usize = 4;

/// The tasks of a process that check at the same time.
const TASKS: u64 = 4;

/// The pause between two checks of a task while a process gathers units: together less than accrues.
const PAUSE: Duration = Duration::from_millis(50);

/// The checks of a task between two bursts, and those of a burst, which follow each other at once.
const CALM: u64 = 15;
const BURST: u64 = 150;

const GENERATION: &str = "LEASE_GENERATION_MS";

/// Four processes that lease the units of one key: each gathers units at a moderate rate, and then spends at once what it
/// can get.
///
/// Dropping the value kills the processes.
#[derive(Debug)]
pub struct LeaseReplicas([Process; REPLICAS]);

impl LeaseReplicas {
    /// Starts the processes, and waits until each has spent leased units.
    ///
    /// Each command has to call [`run_lease_replica`] with the URL of the server.
    ///
    /// # Panics
    ///
    /// When a process does not start.
    #[must_use]
    pub fn start(program: impl Fn() -> Command, generation: Duration) -> Self {
        let start = |_| {
            let mut command = program();
            command.env(GENERATION, generation.as_millis().to_string());
            Process::start(command, "ready")
        };
        let this = Self([0; REPLICAS].map(start));
        wait::until("each process to spend leased units", PATIENCE, || this.leased().iter().all(|&count| count > 0));
        this
    }

    /// Returns the leased units that each process has spent. The output of the processes may lag behind.
    #[must_use]
    pub fn leased(&self) -> [usize; REPLICAS] {
        self.0.each_ref().map(|process| process.output().matches(" leased").count())
    }

    /// Kills a process.
    pub fn kill(&mut self, at: usize) {
        self.0[at].kill();
    }

    /// Stops a process for a time.
    ///
    /// # Panics
    ///
    /// When the process has ended.
    pub fn stop(&self, at: usize, pause: Duration) {
        let pid = i32::try_from(self.0[at].pid()).ok().and_then(Pid::from_raw).expect("a process number");
        kill_process(pid, Signal::STOP).expect("the process runs");
        // The length of the stop is the fault, and no condition.
        std::thread::sleep(pause);
        kill_process(pid, Signal::CONT).expect("the process runs");
    }

    /// Waits until all processes that live have spent more leased units.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub fn wait_for_leases(&self, live: &[usize]) {
        let before = self.leased();
        wait::until("the processes to spend leased units", PATIENCE, || {
            let now = self.leased();
            live.iter().all(|&at| now[at] > before[at] + 20)
        });
    }

    /// Kills all processes, and returns their admissions.
    ///
    /// # Panics
    ///
    /// When a process has printed something else than its admissions.
    #[must_use]
    pub fn end(mut self) -> Vec<Admission> {
        let mut admissions = Vec::new();
        for process in &mut self.0 {
            process.kill();
            let output = process.output();
            // The last line of a process that was killed may be cut off.
            let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
            admissions.extend(whole.lines().filter(|line| line.starts_with("admitted ")).map(admission));
        }
        admissions
    }
}

fn admission(line: &str) -> Admission {
    let words: Vec<_> = line.split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).expect("a number");
    Admission { from_us: number(1), to_us: number(2), is_leased: words.get(3) == Some(&"leased") }
}

/// Runs one of the processes, until it is killed.
///
/// # Panics
///
/// When the server cannot be reached at the start.
pub fn run_lease_replica(url: &str) {
    let generation = env::var(GENERATION).ok().and_then(|word| word.parse().ok()).expect("a length in milliseconds");
    let lease = Lease::new().generation(Duration::from_millis(generation)).share(2);
    let policy = Policy::token_bucket("shared", Quota::per_second(LEASED_PER_SECOND)).leased(lease);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::builder(url).prefix("leases").connect().await.expect("a store");
        // A check that the store does not decide is no admission.
        let limiter = Limiter::builder(store).policies(policy).on_outage(Outage::Closed).build();
        println!("ready");
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(spend(limiter.clone(), task));
        }
        tasks.join_all().await;
    });
}

async fn spend(limiter: Limiter, task: u64) {
    sleep(PAUSE * task as u32 / TASKS as u32).await;
    for at in 0.. {
        let next = Instant::now() + PAUSE;
        let from_us = now_us();
        let decided = limiter.check("hot").await;
        let to_us = now_us();
        let is_denied = match decided {
            Ok(decision) if decision.is_allowed() => {
                println!("admitted {from_us} {to_us}{}", if decision.is_leased() { " leased" } else { "" });
                false
            }
            _ => true,
        };
        if at % (CALM + BURST) < CALM || is_denied {
            sleep_until(next).await;
        }
    }
}
