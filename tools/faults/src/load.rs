//! Makes checks all the time, and records each result.

use std::{
    env,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::task::{JoinHandle, spawn_blocking};
use tollgate::{ErrorKind, Key, Limiter, Outage, Policy, Quota, RedisStore, redis::RedisSource};
use tollgate_tests::{Client, RedisServer, wait};

use crate::findings::Findings;

/// The longest wait of a row, also for a fail-over on a slow machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(1);

/// The longest check: the default deadline of 50 ms, and the time that a process takes to be woken.
const LONGEST_MS: f64 = 70.0;

/// The quota of [`LARGE`].
pub(crate) const AMOUNT: u64 = 10_000_000;

/// So large and slow that no unit accrues and no check is denied.
pub(crate) const LARGE: Policy = Policy::fixed_window("large", Quota::per_day(AMOUNT));

/// Tasks that check one key after another, with pauses of a millisecond.
#[derive(Debug)]
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<Sample>>>,
}

/// The result of one check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    pub(crate) is_allowed: bool,
    /// The word of the error kind, where the store did not decide.
    pub(crate) reason: Option<&'static str>,
}

impl Sample {
    /// Returns whether the check ran at some time between these instants.
    pub(crate) fn was_between(&self, from: Instant, until: Instant) -> bool {
        self.began + self.took >= from && self.began < until
    }
}

impl Load {
    pub(crate) fn start(
        limiter: &Limiter,
        tasks: usize,
        keys: impl IntoIterator<Item = Key>,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let keys: Arc<[Key]> = keys.into_iter().collect();
        let task = |first: usize| {
            let (limiter, keys) = (limiter.clone(), Arc::clone(&keys));
            let is_over = Arc::clone(&is_over);
            tokio::spawn(async move {
                let mut samples = Vec::new();
                for at in first.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    samples.push(sample(&limiter, keys[at % keys.len()].clone()).await);
                    tokio::time::sleep(LOOK).await;
                }
                samples
            })
        };
        let tasks = (0..tasks).map(task).collect();
        Self { is_over, tasks }
    }

    /// Ends the tasks and returns all samples.
    pub(crate) async fn end(self) -> Vec<Sample> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut samples = Vec::new();
        for task in self.tasks {
            samples.extend(task.await.expect("a task"));
        }
        samples
    }

    /// Ends the tasks where every check has to be admitted: by the store or without it.
    pub(crate) async fn end_answered(self) -> Vec<Sample> {
        let samples = self.end().await;
        let refused = samples.iter().filter(|sample| !sample.is_allowed).count();
        assert_eq!(refused, 0, "checks without an answer, of {}", samples.len());
        samples
    }
}

/// Checks a key once.
pub(crate) async fn sample(limiter: &Limiter, key: impl Into<Key>) -> Sample {
    let began = Instant::now();
    let decision = limiter.check(key).await;
    let took = began.elapsed();
    let (is_allowed, reason) = match decision {
        Ok(decision) => (decision.is_allowed(), decision.degraded()),
        Err(error) => (false, Some(error.kind())),
    };
    Sample {
        began,
        took,
        is_allowed,
        reason: reason.map(ErrorKind::as_str),
    }
}

/// Returns a limiter over [`LARGE`] with the default answer in an outage.
pub(crate) fn large(store: &RedisStore) -> Limiter {
    limiter(store, LARGE, Outage::default())
}

pub(crate) fn limiter(store: &RedisStore, policy: Policy, outage: Outage) -> Limiter {
    Limiter::builder(store.clone())
        .policies(policy)
        .on_outage(outage)
        .build()
}

/// Returns a limiter over [`LARGE`] that has used its connection.
pub(crate) async fn connected(source: impl Into<RedisSource>) -> Limiter {
    let large = large(&RedisStore::connect(source).await.expect("a store"));
    decides(&large, "acme").await;
    large
}

/// Waits until the store decides a peek, and returns the time.
pub(crate) async fn decides(limiter: &Limiter, key: impl Into<Key>) -> Instant {
    let (key, began) = (key.into(), Instant::now());
    let is_decided = async || {
        let decision = limiter.peek(key.clone()).await;
        decision.is_ok_and(|decision| !decision.is_degraded())
    };
    while !is_decided().await {
        assert!(began.elapsed() < PATIENT, "the store does not decide again");
        tokio::time::sleep(LOOK).await;
    }
    Instant::now()
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    wait::until_async(what, PATIENT, condition).await;
}

/// Runs what blocks.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("it ends")
}

/// Restarts a killed server, and returns the time of its first answer.
pub(crate) async fn restart(server: &Arc<RedisServer>) -> Instant {
    let (starting, addr) = (Arc::clone(server), server.addr());
    let starting = spawn_blocking(move || starting.restart());
    let answered = spawn_blocking(move || {
        let is_up = || {
            let reply = Client::connect(addr).ok()?.command(&["PING"]).ok()?;
            (reply.text() == "PONG").then_some(())
        };
        let began = Instant::now();
        while is_up().is_none() && began.elapsed() < PATIENT {
            thread::sleep(LOOK);
        }
        Instant::now()
    });
    starting.await.expect("it starts");
    answered.await.expect("it answers")
}

/// Kills a server.
pub(crate) async fn kill(server: &Arc<RedisServer>) {
    let server = Arc::clone(server);
    blocking(move || server.kill()).await;
}

/// Returns the command that starts this program again, to play a part at a server.
pub(crate) fn part(name: &str, url: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args([name, url]);
    command
}

/// Adds the longest of these checks.
pub(crate) fn longest(findings: &mut Findings, asked: &str, samples: &[Sample]) {
    findings.at_most(LONGEST_MS, asked, quantile(samples, 1.0), "ms");
}

/// Returns the share of the checks that the store did not decide, in percent.
pub(crate) fn degraded(samples: &[Sample]) -> f64 {
    let degraded = samples.iter().filter(|it| it.reason.is_some()).count();
    100.0 * degraded as f64 / samples.len() as f64
}

/// Returns the time in milliseconds that this share of the samples does not exceed; 0 without
/// samples.
pub(crate) fn quantile<'a>(samples: impl IntoIterator<Item = &'a Sample>, share: f64) -> f64 {
    let mut times: Vec<Duration> = samples.into_iter().map(|sample| sample.took).collect();
    times.sort_unstable();
    let at = (times.len().saturating_sub(1) as f64 * share).round() as usize;
    times.get(at).copied().map_or(0.0, millis)
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
