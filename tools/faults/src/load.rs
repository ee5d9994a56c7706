//! Checks all the time, and what became of each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use tollgate::{ErrorKind, Key, Limiter, Outage, Policy, Quota, RedisStore};
use tollgate_tests::{Client, RedisServer, wait};

/// What a slow machine may take for what takes milliseconds, or a fail-over.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

/// The quota of [`LARGE`].
pub(crate) const AMOUNT: u64 = 10_000_000;

/// So large and slow that nothing accrues and nobody is denied.
pub(crate) const LARGE: Policy = Policy::fixed_window("large", Quota::per_day(10_000_000));

/// Tasks that check one key after another, with a millisecond in between.
#[derive(Debug)]
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<Sample>>>,
}

/// One check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    pub(crate) is_allowed: bool,
    /// Why the store did not decide, if it did not.
    pub(crate) reason: Option<&'static str>,
}

impl Sample {
    /// Whether it was under way at some time between.
    pub(crate) fn was_between(&self, from: Instant, until: Instant) -> bool {
        self.began + self.took >= from && self.began < until
    }
}

impl Load {
    pub(crate) fn start(limiter: &Limiter, tasks: usize, keys: impl IntoIterator<Item = Key>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let keys: Arc<[Key]> = keys.into_iter().collect();
        let task = |at: usize| {
            let (limiter, is_over, keys) = (limiter.clone(), Arc::clone(&is_over), Arc::clone(&keys));
            tokio::spawn(async move {
                let mut samples = Vec::new();
                let mut at = at;
                while !is_over.load(Ordering::Relaxed) {
                    samples.push(sample(&limiter, keys[at % keys.len()].clone()).await);
                    at += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                samples
            })
        };
        let tasks = (0..tasks).map(task).collect();
        Self { is_over, tasks }
    }

    /// Ends it and gives all samples.
    pub(crate) async fn end(self) -> Vec<Sample> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut samples = Vec::new();
        for task in self.tasks {
            samples.extend(task.await.expect("a task"));
        }
        samples
    }
}

/// One check of one key.
pub(crate) async fn sample(limiter: &Limiter, key: impl Into<Key>) -> Sample {
    let began = Instant::now();
    let decision = limiter.check(key).await;
    let took = began.elapsed();
    match decision {
        Ok(decision) => Sample {
            began,
            took,
            is_allowed: decision.is_allowed(),
            reason: decision.degraded().map(ErrorKind::as_str),
        },
        Err(error) => Sample { began, took, is_allowed: false, reason: Some(error.kind().as_str()) },
    }
}

pub(crate) fn limiter(store: &RedisStore, policy: Policy, outage: Outage) -> Limiter {
    Limiter::builder(store.clone()).policies(policy).on_outage(outage).build()
}

/// With a deadline that is never met by mistake, and errors where there is no decision.
pub(crate) fn patient(store: &RedisStore, policy: Policy) -> Limiter {
    Limiter::builder(store.clone()).policies(policy).deadline(PATIENT).on_outage(Outage::Closed).build()
}

/// Waits until the store decides, at no cost, and gives the time at which it did.
pub(crate) async fn decides(limiter: &Limiter, key: impl Into<Key>) -> Instant {
    let (key, began) = (key.into(), Instant::now());
    while !limiter.peek(key.clone()).await.is_ok_and(|decision| !decision.is_degraded()) {
        assert!(began.elapsed() < PATIENT, "the store does not decide again");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Instant::now()
}

/// What of a key is left under the first policy.
pub(crate) async fn remaining(limiter: &Limiter, key: impl Into<Key>) -> u64 {
    limiter.peek(key).await.expect("a decision").states().next().expect("a state").remaining()
}

/// Waits until the server answers a command so, asking each millisecond, and gives the time at which it did.
pub(crate) async fn answers(server: &Arc<RedisServer>, words: &[&str], answer: &'static str) -> Instant {
    let addr = server.addr();
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let asking = move || {
        let mut client: Option<Client> = None;
        let began = Instant::now();
        loop {
            client = client.or_else(|| Client::connect(addr).ok());
            match client.as_mut().map(|client| client.command(&words)) {
                Some(Ok(reply)) if !reply.is_nil() && reply.text() == answer => return Instant::now(),
                Some(Ok(_)) | None => {}
                Some(Err(_)) => client = None,
            }
            assert!(began.elapsed() < PATIENT, "the server does not answer {words:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    tokio::task::spawn_blocking(asking).await.expect("a task")
}

/// Starts a server that was killed again, and gives the time from which it answers.
pub(crate) async fn restart(server: &Arc<RedisServer>) -> Instant {
    let starting = Arc::clone(server);
    let starting = tokio::task::spawn_blocking(move || starting.restart());
    let answered = answers(server, &["PING"], "PONG").await;
    starting.await.expect("it starts");
    answered
}

/// Waits, without blocking the runtime, for what another thread tells.
pub(crate) async fn told(by: std::sync::mpsc::Receiver<Instant>) -> Instant {
    tokio::task::spawn_blocking(move || by.recv_timeout(PATIENT)).await.expect("a task").expect("it is told")
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    wait::until_async(what, PATIENT, condition).await;
}

/// What `share` of the samples took at most, in milliseconds; 0 without samples.
pub(crate) fn quantile<'a>(samples: impl IntoIterator<Item = &'a Sample>, share: f64) -> f64 {
    let mut times: Vec<Duration> = samples.into_iter().map(|sample| sample.took).collect();
    times.sort_unstable();
    let at = (times.len().saturating_sub(1) as f64 * share).round() as usize;
    times.get(at).copied().map_or(0.0, millis)
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
