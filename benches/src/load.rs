//! Runs concurrent callers. Each caller requests a decision, waits for it, and requests the next
//! one.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Runtime, task::coop};
use tollgate::ErrorKind;

use crate::{keys::Random, machine, server::Server};

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

    pub(crate) fn is_by_store(self) -> bool {
        !matches!(self, Self::WithoutStore(_))
    }
}

/// Sets the number of callers, and the number of keys that they choose from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) callers: usize,
    pub(crate) keys: usize,
}

/// Stores the decisions of a crowd, and their cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) decisions: u64,
    pub(crate) admitted: u64,
    pub(crate) elapsed: Duration,
    /// Processor time of this process per decision, in microseconds. It includes the callers' own
    /// work.
    pub(crate) client_us: f64,
    /// Processor time of the server per decision, in microseconds.
    pub(crate) server_us: f64,
    /// Median latency in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub(crate) p99_us: f64,
}

impl Load {
    pub(crate) fn per_second(&self) -> f64 {
        self.decisions as f64 / self.elapsed.as_secs_f64()
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

/// Runs the callers of a crowd for about `time`, and measures them.
pub(crate) fn run<D: Decide>(
    runtime: &Runtime,
    server: &Server,
    decide: &Arc<D>,
    crowd: Crowd,
    time: Duration,
) -> Load {
    let server_before = server.usage();
    let cpu_before = machine::own_cpu();
    let started = Instant::now();
    let tallies = runtime.block_on(async {
        let callers: Vec<_> = (0..crowd.callers)
            .map(|caller| tokio::spawn(call(Arc::clone(decide), crowd, caller, started + time)))
            .collect();
        let mut tallies = Vec::with_capacity(crowd.callers);
        for caller in callers {
            tallies.push(caller.await.expect("a caller ends without a panic"));
        }
        tallies
    });
    let elapsed = started.elapsed();
    let client_cpu = machine::own_cpu() - cpu_before;
    let server_cpu = server.usage().since(&server_before).cpu;

    let mut latencies: Vec<u32> = tallies
        .iter()
        .flat_map(|tally| &tally.latencies_ns)
        .copied()
        .collect();
    latencies.sort_unstable();
    let at = |share: f64| percentile(&latencies, share) / 1e3;
    let decisions = tallies.iter().map(|tally| tally.decisions).sum();
    let each_us = |cpu: Duration| cpu.as_secs_f64() * 1e6 / decisions as f64;
    Load {
        decisions,
        admitted: tallies.iter().map(|tally| tally.admitted).sum(),
        elapsed,
        client_us: each_us(client_cpu),
        server_us: each_us(server_cpu),
        p50_us: at(0.5),
        p99_us: at(0.99),
    }
}

/// Returns the value at this share of the sorted values. Returns NaN without values.
pub(crate) fn percentile(sorted: &[u32], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .map_or(f64::NAN, |&value| f64::from(value))
}

#[derive(Default)]
struct Tally {
    decisions: u64,
    admitted: u64,
    latencies_ns: Vec<u32>,
}

/// Sets how many decisions a caller makes for each reading of the clock.
///
/// Readings are rare, so that their cost does not distort the figures.
const GLANCE: u64 = 16;

async fn call<D: Decide>(decide: Arc<D>, crowd: Crowd, caller: usize, until: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(1 + caller as u64);
    let glance = if crowd.callers == 1 { 1 } else { GLANCE };
    loop {
        for at in 0..glance {
            let key = random.below(crowd.keys);
            let asked = (at == 0).then(Instant::now);
            match decide.decide(key).await {
                Answer::Admitted => tally.admitted += 1,
                Answer::Denied => {}
                Answer::WithoutStore(reason) => {
                    panic!("a decision was made without the store: {reason}")
                }
            }
            tally.decisions += 1;
            if let Some(asked) = asked {
                tally
                    .latencies_ns
                    .push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
            }
            // A caller that never waits has to yield, so that the other callers can run.
            coop::consume_budget().await;
        }
        if Instant::now() >= until {
            return tally;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        assert_eq!(percentile(&[1, 2, 3, 4], 0.5), 3.0);
        assert_eq!(percentile(&[1, 2, 3, 4], 1.0), 4.0);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
