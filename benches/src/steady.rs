//! Runs callers as [`load`](crate::load) does, for servers at a distance: counts what ends after
//! the first round trips.
//!
//! A turn is short, and a round trip is long. If the begin and the end of a turn counted, they
//! would change the figures.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Runtime, task::coop};

use crate::{
    keys::Random,
    load::{Answer, Crowd, Decide, percentile},
    server::Server,
};

/// Stores the decisions of a crowd in the middle of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) by_store: u64,
    pub(crate) without_store: u64,
    pub(crate) elapsed: Duration,
    /// Percentiles of the time until the store decided.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Processor time of the server, as a share of the time.
    pub(crate) server_busy: f64,
}

impl Flow {
    /// Returns the decisions per second that the store made.
    pub(crate) fn per_second(&self) -> f64 {
        self.by_store as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the share of decisions that were made without the store.
    pub(crate) fn share_without(&self) -> f64 {
        self.without_store as f64 / (self.by_store + self.without_store) as f64
    }
}

/// Runs the callers of a crowd for `before`, and then counts for `time`.
///
/// # Panics
///
/// When a request is denied: the limits of these sections are never used up.
pub(crate) fn run<D: Decide>(
    runtime: &Runtime,
    server: &Server,
    decide: &Arc<D>,
    crowd: Crowd,
    before: Duration,
    time: Duration,
) -> Flow {
    let from = Instant::now() + before;
    let until = from + time;
    let (tallies, usage) = runtime.block_on(async {
        let spawn = |caller| tokio::spawn(call(Arc::clone(decide), crowd, caller, from, until));
        let callers: Vec<_> = (0..crowd.callers).map(spawn).collect();
        tokio::time::sleep_until(from.into()).await;
        let usage = server.usage();
        let mut tallies = Vec::with_capacity(crowd.callers);
        for caller in callers {
            tallies.push(caller.await.expect("a caller ends without a panic"));
        }
        (tallies, usage)
    });
    let cpu = server.usage().since(&usage).cpu;
    let mut latencies: Vec<u32> = tallies
        .iter()
        .flat_map(|tally| &tally.latencies_us)
        .copied()
        .collect();
    latencies.sort_unstable();
    let at = |share: f64| percentile(&latencies, share) / 1e3;
    Flow {
        by_store: latencies.len() as u64,
        without_store: tallies.iter().map(|tally| tally.without_store).sum(),
        elapsed: time,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        server_busy: cpu.as_secs_f64() / time.as_secs_f64(),
    }
}

#[derive(Default)]
struct Tally {
    latencies_us: Vec<u32>,
    without_store: u64,
}

async fn call<D: Decide>(
    decide: Arc<D>,
    crowd: Crowd,
    caller: usize,
    from: Instant,
    until: Instant,
) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(1 + caller as u64);
    let mut asked = Instant::now();
    loop {
        let answer = decide.decide(random.below(crowd.keys)).await;
        // The end of a decision is the begin of the next one, so the clock is read once.
        let ended = Instant::now();
        if ended >= until {
            return tally;
        }
        if ended >= from {
            match answer {
                Answer::Admitted => {
                    tally
                        .latencies_us
                        .push(u32::try_from((ended - asked).as_micros()).unwrap_or(u32::MAX));
                }
                Answer::WithoutStore(_) => tally.without_store += 1,
                Answer::Denied => panic!("all requests are within the limit"),
            }
        }
        asked = ended;
        // A caller that never waits has to yield, so that the other callers can run.
        coop::consume_budget().await;
    }
}
