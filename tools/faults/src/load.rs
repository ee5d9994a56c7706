//! Makes checks all the time, and records each result.

use std::{
    env,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use tollgate::{ErrorKind, Key, Limiter, Outage, Policy, Quota, RedisStore, redis::RedisSource};
pub(crate) use tollgate_test_support::{patient_limiter, remaining};
use tollgate_tests::{Client, RedisServer, wait};

/// The longest wait of a row, also for a fail-over on a slow machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

/// The quota of [`LARGE`].
pub(crate) const AMOUNT: u64 = 10_000_000;

/// So large and slow that no unit accrues and no check is denied.
pub(crate) const LARGE: Policy = Policy::fixed_window("large", Quota::per_day(10_000_000));

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
        let task = |at: usize| {
            let (limiter, is_over, keys) =
                (limiter.clone(), Arc::clone(&is_over), Arc::clone(&keys));
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

    /// Ends the tasks and returns all samples.
    pub(crate) async fn end(self) -> Vec<Sample> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut samples = Vec::new();
        for task in self.tasks {
            samples.extend(task.await.expect("a task"));
        }
        samples
    }
}

/// Checks a key once.
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
        Err(error) => Sample {
            began,
            took,
            is_allowed: false,
            reason: Some(error.kind().as_str()),
        },
    }
}

/// Starts a server, and returns it with a limiter over [`LARGE`] that has used its connection.
pub(crate) async fn ready() -> (RedisServer, RedisStore, Limiter) {
    let server = RedisServer::start();
    let (store, large) = connected(server.url_at(server.addr())).await;
    (server, store, large)
}

/// Returns a store at a server.
pub(crate) async fn store_at(server: &RedisServer) -> RedisStore {
    RedisStore::connect(server.url_at(server.addr()))
        .await
        .expect("a store")
}

/// Returns a store at a server, and a limiter over [`LARGE`] that has used its connection.
pub(crate) async fn connected(source: impl Into<RedisSource>) -> (RedisStore, Limiter) {
    let store = RedisStore::connect(source).await.expect("a store");
    let large = limiter(&store, LARGE, Outage::default());
    decides(&large, "acme").await;
    (store, large)
}

pub(crate) fn limiter(store: &RedisStore, policy: Policy, outage: Outage) -> Limiter {
    Limiter::builder(store.clone())
        .policies(policy)
        .on_outage(outage)
        .build()
}

/// Waits until the store decides a peek, and returns the time.
pub(crate) async fn decides(limiter: &Limiter, key: impl Into<Key>) -> Instant {
    let (key, began) = (key.into(), Instant::now());
    while !limiter
        .peek(key.clone())
        .await
        .is_ok_and(|decision| !decision.is_degraded())
    {
        assert!(began.elapsed() < PATIENT, "the store does not decide again");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Instant::now()
}

/// Sends a command each millisecond until the server gives this answer, and returns the time.
pub(crate) async fn answers(
    server: &Arc<RedisServer>,
    words: &[&str],
    answer: &'static str,
) -> Instant {
    let addr = server.addr();
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let asking = move || {
        let mut client: Option<Client> = None;
        let began = Instant::now();
        loop {
            client = client.or_else(|| Client::connect(addr).ok());
            match client.as_mut().map(|client| client.command(&words)) {
                Some(Ok(reply)) if !reply.is_nil() && reply.text() == answer => {
                    return Instant::now();
                }
                Some(Ok(_)) | None => {}
                Some(Err(_)) => client = None,
            }
            assert!(
                began.elapsed() < PATIENT,
                "the server does not answer {words:?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    tokio::task::spawn_blocking(asking).await.expect("a task")
}

/// Restarts a killed server, and returns the time of its first answer.
pub(crate) async fn restart(server: &Arc<RedisServer>) -> Instant {
    let starting = Arc::clone(server);
    let starting = tokio::task::spawn_blocking(move || starting.restart());
    let answered = answers(server, &["PING"], "PONG").await;
    starting.await.expect("it starts");
    answered
}

/// Waits for the time that another thread sends, without blocking the runtime.
pub(crate) async fn announced(by: std::sync::mpsc::Receiver<Instant>) -> Instant {
    tokio::task::spawn_blocking(move || by.recv_timeout(PATIENT))
        .await
        .expect("a task")
        .expect("it is announced")
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    wait::until_async(what, PATIENT, condition).await;
}

/// Returns the command that starts this program again, to play a part at a server.
pub(crate) fn part(name: &str, url: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command.args([name, url]);
    command
}

/// Returns the number of checks that the store did not decide.
pub(crate) fn degraded(samples: &[Sample]) -> f64 {
    samples.iter().filter(|it| it.reason.is_some()).count() as f64
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
