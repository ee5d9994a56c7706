//! Generates load for limiters at a server: callers that ask again as soon as they have their answer
//! (a closed loop), and requests at a rate that does not depend on the answers (an open loop).

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{runtime::Runtime, sync::mpsc, task::coop};
use tollgate::ErrorKind;

use crate::{
    keys::Random,
    machine,
    pace::Rounds,
    rounds::{Case, Series, alternate},
    server::Server,
};

/// Makes decisions through a server.
pub(crate) trait Decide: Send + Sync + 'static {
    /// Decides about the key with that number.
    ///
    /// # Panics
    ///
    /// When no decision is reached, so that a failure does not count as a fast decision.
    fn decide(&self, key: usize) -> impl Future<Output = Answer> + Send;
}

/// Tells how a decision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted,
    Denied,
    /// The store did not decide, for this reason.
    WithoutStore(ErrorKind),
}

impl Answer {
    /// Returns the answer of a store.
    pub(crate) fn by_store(is_admitted: bool) -> Self {
        if is_admitted {
            Self::Admitted
        } else {
            Self::Denied
        }
    }
}

/// Creates a runtime of the kind that services use, with one worker thread for the client core.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime is created")
}

/// Describes callers in a closed loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) callers: usize,
    /// The number of keys that they choose from.
    pub(crate) keys: usize,
    /// The round trip to the server.
    pub(crate) trip: Duration,
}

impl Crowd {
    /// Returns callers of a server on the same machine.
    pub(crate) fn near(callers: usize, keys: usize) -> Self {
        Self {
            callers,
            keys,
            trip: Duration::ZERO,
        }
    }
}

/// Stores the decisions of a crowd, and their cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    by_store: u64,
    without_store: u64,
    elapsed: Duration,
    /// Processor time of this process per decision, in microseconds. It includes the callers' own
    /// work.
    pub(crate) client_us: f64,
    /// Processor time of the server per decision, in microseconds.
    pub(crate) server_us: f64,
    /// Median of the time until the store decided, in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile of this time.
    pub(crate) p99_us: f64,
}

impl Load {
    /// Returns the decisions per second that the store made.
    pub(crate) fn per_second(&self) -> f64 {
        self.by_store as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the share of decisions that were made without the store.
    pub(crate) fn share_without(&self) -> f64 {
        self.without_store as f64 / (self.by_store + self.without_store) as f64
    }
}

/// Decides in one of the ways that are compared.
pub(crate) struct Contestant<'a> {
    name: String,
    turn: Box<dyn Fn(Crowd, Duration) -> Load + 'a>,
}

impl<'a> Contestant<'a> {
    /// Creates a contestant. `server` is the server whose processor time counts.
    pub(crate) fn new(
        name: &str,
        runtime: &'a Runtime,
        server: Option<&Arc<Server>>,
        decide: impl Decide,
    ) -> Self {
        let (server, decide) = (server.cloned(), Arc::new(decide));
        Self {
            name: name.to_owned(),
            turn: Box::new(move |crowd, time| {
                run(runtime, server.as_deref(), &decide, crowd, time)
            }),
        }
    }
}

/// Runs the turns of all contestants with the same crowd.
pub(crate) fn turns(
    contestants: &[Contestant<'_>],
    rounds: Rounds,
    crowd: Crowd,
) -> Vec<Series<Load>> {
    let cases = contestants
        .iter()
        .map(|one| Case::new(&one.name, move |time| (one.turn)(crowd, time)));
    alternate(rounds, cases.collect())
}

/// Sets the phases of a turn. What is decided in the first one does not count: then the callers start,
/// and their first round trips end.
const BEFORE: u8 = 0;
const COUNTED: u8 = 1;
const OVER: u8 = 2;

/// Runs the callers of a crowd, and counts for `time`.
///
/// # Panics
///
/// When a request is denied: the limits of these sections are never used up.
pub(crate) fn run<D: Decide>(
    runtime: &Runtime,
    server: Option<&Server>,
    decide: &Arc<D>,
    crowd: Crowd,
    time: Duration,
) -> Load {
    let phase = Arc::new(AtomicU8::new(BEFORE));
    let spawn = |caller| runtime.spawn(call(Arc::clone(decide), crowd, caller, Arc::clone(&phase)));
    let callers: Vec<_> = (0..crowd.callers).map(spawn).collect();
    let used = || {
        let by_server = server.map_or(Duration::ZERO, Server::cpu);
        (Instant::now(), machine::own_cpu(), by_server)
    };
    thread::sleep(time / 5 + crowd.trip * 5);
    phase.store(COUNTED, Ordering::Relaxed);
    let (began, client_before, server_before) = used();
    thread::sleep(time);
    phase.store(OVER, Ordering::Relaxed);
    let (ended, client, server) = used();

    let (mut by_store, mut without_store, mut latencies) = (0, 0, Vec::new());
    for caller in callers {
        let tally = runtime.block_on(caller);
        let tally = tally.expect("a caller ends without a panic");
        by_store += tally.by_store;
        without_store += tally.without_store;
        latencies.extend(tally.latencies_ns);
    }
    latencies.sort_unstable();
    let each_us = |cpu: Duration, before: Duration| {
        cpu.saturating_sub(before).as_secs_f64() * 1e6 / (by_store + without_store) as f64
    };
    Load {
        by_store,
        without_store,
        elapsed: ended - began,
        client_us: each_us(client, client_before),
        server_us: each_us(server, server_before),
        p50_us: percentile(&latencies, 0.5) / 1e3,
        p99_us: percentile(&latencies, 0.99) / 1e3,
    }
}

#[derive(Default)]
struct Tally {
    by_store: u64,
    without_store: u64,
    latencies_ns: Vec<u32>,
}

/// Sets how many decisions of a caller there are for each one that is timed. Readings of the clock
/// are rare, so that their cost does not distort the figures.
const TIMED: u64 = 16;

/// Sets the time from which each decision is timed: they are few.
const SLOW: Duration = Duration::from_millis(1);

async fn call<D: Decide>(
    decide: Arc<D>,
    crowd: Crowd,
    caller: usize,
    phase: Arc<AtomicU8>,
) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(1 + caller as u64);
    let mut are_few = crowd.callers == 1;
    for number in 0_u64.. {
        let asked = (are_few || number % TIMED == 0).then(Instant::now);
        let answer = decide.decide(random.below(crowd.keys)).await;
        let took = asked.map(|asked| asked.elapsed());
        are_few |= took.is_some_and(|took| took > SLOW);
        match phase.load(Ordering::Relaxed) {
            BEFORE => {}
            COUNTED => match answer {
                Answer::Admitted => {
                    tally.by_store += 1;
                    let ns = took.map(|took| u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
                    tally.latencies_ns.extend(ns);
                }
                Answer::WithoutStore(_) => tally.without_store += 1,
                Answer::Denied => panic!("all requests are within the limit"),
            },
            _ => break,
        }
        // A caller that never waits has to yield, so that the other callers can run.
        coop::consume_budget().await;
    }
    tally
}

/// Describes arrivals in an open loop. The times between two of them are exponential, as with many
/// independent clients.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) per_second: f64,
    pub(crate) time: Duration,
    /// The number of keys. All are equally likely, except for the flooded one.
    pub(crate) keys: usize,
    /// The share that is for the key with number 0.
    pub(crate) flood: f64,
}

/// Stores what became of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) key: usize,
    /// The time since the request was due, so a client that falls behind does not look fast.
    pub(crate) took: Duration,
    pub(crate) answer: Answer,
}

/// Sets the shortest pause between arrivals. A shorter one would take the client core from the
/// requests.
const PAUSE: Duration = Duration::from_micros(200);

/// Offers requests, each as a task of its own, and waits until each has its answer.
pub(crate) fn offer<D: Decide>(runtime: &Runtime, decide: &Arc<D>, offer: &Offer) -> Vec<Sample> {
    let (sender, mut answered) = mpsc::unbounded_channel();
    let began = Instant::now();
    let mut random = Random::new(offer.per_second as u64);
    let mut due = Duration::ZERO;
    while due < offer.time {
        let now = began.elapsed();
        while due <= now && due < offer.time {
            let key = if random.share() < offer.flood {
                0
            } else {
                1 + random.below(offer.keys - 1)
            };
            let (decide, sender) = (Arc::clone(decide), sender.clone());
            runtime.spawn(async move {
                let answer = decide.decide(key).await;
                let took = began.elapsed().saturating_sub(due);
                // The receiver waits for all samples.
                let _ = sender.send(Sample { key, took, answer });
            });
            // The share is below one, so the logarithm is finite.
            due += Duration::from_secs_f64(-(1.0 - random.share()).ln() / offer.per_second);
        }
        thread::sleep(due.saturating_sub(began.elapsed()).max(PAUSE));
    }
    drop(sender);
    let mut samples = Vec::new();
    while let Some(sample) = answered.blocking_recv() {
        samples.push(sample);
    }
    samples
}

/// Returns the value at this share of the sorted values. Returns NaN without values.
pub(crate) fn percentile(sorted: &[u32], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .map_or(f64::NAN, |&value| f64::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers at once. Each tenth request is decided without the store.
    struct Instantly;

    impl Decide for Instantly {
        async fn decide(&self, key: usize) -> Answer {
            if key % 10 == 1 {
                Answer::WithoutStore(ErrorKind::Overloaded)
            } else {
                Answer::Admitted
            }
        }
    }

    #[test]
    fn what_is_decided_without_the_store_is_no_decision_of_a_second() {
        let load = Load {
            by_store: 90,
            without_store: 10,
            elapsed: Duration::from_millis(500),
            client_us: 0.0,
            server_us: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
        };
        assert_eq!((load.per_second(), load.share_without()), (180.0, 0.1));
    }

    #[test]
    fn the_offered_rate_is_the_requested_one() {
        let requests = Offer {
            per_second: 20_000.0,
            time: Duration::from_millis(500),
            keys: 1_001,
            flood: 0.5,
        };
        let samples = offer(&runtime(), &Arc::new(Instantly), &requests);
        // The generator is seeded, so the number of arrivals is the same in each run.
        assert!(
            (9_500..10_500).contains(&samples.len()),
            "{}",
            samples.len()
        );
        let flood = samples.iter().filter(|sample| sample.key == 0).count();
        assert!((4_500..5_500).contains(&flood), "{flood}");
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        assert_eq!(percentile(&[1, 2, 3, 4], 0.5), 3.0);
        assert_eq!(percentile(&[1, 2, 3, 4], 1.0), 4.0);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
