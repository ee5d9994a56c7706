//! A process that takes permits and works with them.

use std::{
    env,
    io::stdin,
    num::NonZeroU32,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::task::JoinSet;
use tollgate::{
    RedisStore,
    permits::{Concurrency, OnLoss},
};
use tollgate_tests::Process;

use super::{
    journal::{Span, now_us},
    replica::{closed_permits, take_permit},
};

/// The deadline of the process.
const DEADLINE: Duration = Duration::from_secs(1);

/// The pause after an attempt that took no permit, and after work that was cancelled.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause between two steps of the work.
const STEP: Duration = Duration::from_millis(5);

const LIMIT: &str = "PERMITS_LIMIT";
const LIFE: &str = "PERMITS_LIFE_MS";
const EXACT: &str = "PERMITS_EXACT";
const TASKS: &str = "PERMITS_TASKS";
const STEPS: &str = "PERMITS_STEPS";

/// Describes the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    /// The limit, until the process reads another one from its input.
    pub(super) limit: usize,
    pub(super) life: Duration,
    pub(super) is_exact: bool,
    /// The tasks that take a permit each.
    pub(super) tasks: usize,
    /// The steps of a piece of work, of 5 ms each. Without a number the work ends when its permit
    /// is lost.
    pub(super) steps: Option<u32>,
}

impl Worker {
    /// Starts the process by a command that calls [`run_permit_worker`].
    pub(super) fn start(self, mut command: Command) -> Process {
        command
            .env(LIMIT, self.limit.to_string())
            .env(LIFE, self.life.as_millis().to_string())
            .env(EXACT, u32::from(self.is_exact).to_string())
            .env(TASKS, self.tasks.to_string())
            .env(STEPS, self.steps.unwrap_or(0).to_string());
        Process::start_listening(command, "ready")
    }
}

/// Returns how many pieces of work a process has in progress. Its output may lag behind.
pub(super) fn at_work(process: &Process) -> usize {
    let output = process.output();
    output.matches("work begins ").count() - output.matches("work ends ").count()
}

pub(super) fn count(process: &Process, line: &str) -> usize {
    process.output().matches(line).count()
}

/// Reads the work of a process that was killed at this time.
pub(super) fn spans_of(output: &str, killed_us: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    for line in output.lines().filter(|line| line.starts_with("work ")) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| {
            words
                .get(at)
                .and_then(|word| word.parse::<u64>().ok())
                .expect("a number")
        };
        match words[1] {
            "begins" => spans.push(Span {
                from_us: number(2),
                to_us: killed_us.max(number(2)),
            }),
            _ => {
                let ended = spans
                    .iter_mut()
                    .rev()
                    .find(|span| span.from_us == number(2) && span.to_us >= killed_us);
                ended.expect("work that began").to_us = number(3);
            }
        }
    }
    spans
}

/// Runs one of the processes: takes permits and works with each, until the process is killed. A
/// line of its input is another limit. Each task says once that it has asked under it: then none
/// asks under the earlier one any more.
///
/// # Panics
///
/// When the server is away at the start, or the process was not started by this module.
pub fn run_permit_worker(url: &str) {
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u32>().ok())
            .expect("a number")
    };
    let policy = Concurrency::new("jobs", number(LIMIT))
        .with_life(Duration::from_millis(number(LIFE).into()))
        .on_loss(OnLoss::Cancel);
    let policy = if number(EXACT) == 1 {
        policy.exact()
    } else {
        policy
    };
    let limit = Arc::new(AtomicU32::new(policy.limit()));
    listen(Arc::clone(&limit));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let store = RedisStore::connect(url).await.expect("a store");
        let limiter = closed_permits(store, policy, DEADLINE);
        let mut tasks = JoinSet::new();
        for _ in 0..number(TASKS) {
            let (limiter, limit, steps) = (limiter.clone(), Arc::clone(&limit), number(STEPS));
            let mut known = number(LIMIT);
            tasks.spawn(async move {
                loop {
                    let now = limit.load(Ordering::Relaxed);
                    let limiter = limiter.with_limit(NonZeroU32::new(now).expect("a limit"));
                    let permit = take_permit(&limiter).await;
                    if now != known {
                        known = now;
                        println!("limit {now}");
                    }
                    let has_worked = match permit {
                        Some(permit) => permit.run(work(steps)).await.is_ok(),
                        None => false,
                    };
                    if !has_worked {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            });
        }
        println!("ready");
        tasks.join_next().await;
    });
}

/// Reads limits from the input.
fn listen(limit: Arc<AtomicU32>) {
    thread::spawn(move || {
        for line in stdin().lines().map_while(Result::ok) {
            limit.store(line.parse().expect("a limit"), Ordering::Relaxed);
        }
    });
}

/// Works for some steps, or without an end, and prints the times of the first step and of the last
/// one.
async fn work(steps: u32) {
    struct Work(Span);
    impl Drop for Work {
        fn drop(&mut self) {
            println!("work ends {} {}", self.0.from_us, self.0.to_us);
        }
    }
    let from_us = now_us();
    println!("work begins {from_us}");
    let mut work = Work(Span {
        from_us,
        to_us: from_us,
    });
    let mut step = 0;
    while steps == 0 || step < steps {
        tokio::time::sleep(STEP).await;
        work.0.to_us = now_us();
        step += 1;
    }
}
