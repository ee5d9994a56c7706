//! Holds the figures of a run.

use crate::time::{Nanos, SECOND};

/// Collects what happens to the checks of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    pub(crate) latencies: Vec<Nanos>,
    pub(crate) late: usize,
}

/// Holds the figures of a run.
#[derive(Debug)]
pub(crate) struct Results {
    /// Decisions per second of each process.
    pub(crate) rates: Vec<f64>,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// The share of checks whose caller left at the deadline.
    pub(crate) late: f64,
    /// The mean wait at the server, and its 99th percentile, in milliseconds.
    pub(crate) wait_ms: f64,
    pub(crate) wait_p99_ms: f64,
    /// The decisions in each step.
    #[cfg_attr(not(test), allow(dead_code, reason = "a picture of a run"))]
    pub(crate) course: Vec<usize>,
}

impl Results {
    pub(crate) fn new(
        samples: Vec<Samples>,
        mut waits: Vec<Nanos>,
        course: Vec<usize>,
        time: Nanos,
    ) -> Self {
        let seconds = time as f64 / SECOND as f64;
        let rates: Vec<f64> = samples
            .iter()
            .map(|it| it.latencies.len() as f64 / seconds)
            .collect();
        let late: usize = samples.iter().map(|it| it.late).sum();
        let mut latencies: Vec<Nanos> = samples.into_iter().flat_map(|it| it.latencies).collect();
        latencies.sort_unstable();
        waits.sort_unstable();
        Self {
            rates,
            p50_ms: percentile(&latencies, 0.5),
            p99_ms: percentile(&latencies, 0.99),
            late: late as f64 / (late + latencies.len()).max(1) as f64,
            wait_ms: waits.iter().map(|&wait| millis(wait)).sum::<f64>()
                / waits.len().max(1) as f64,
            wait_p99_ms: percentile(&waits, 0.99),
            course,
        }
    }

    /// Returns the decisions per second of all processes.
    pub(crate) fn rate(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Returns Jain's index of fairness: 1 when all processes have the same rate, 1/n when one has
    /// all.
    ///
    /// Source: Jain, Chiu, Hawe, "A quantitative measure of fairness", DEC-TR-301, 1984.
    pub(crate) fn fairness(&self) -> f64 {
        let squares: f64 = self.rates.iter().map(|rate| rate * rate).sum();
        self.rate().powi(2) / (self.rates.len() as f64 * squares)
    }
}

/// Returns the value at this share of the sorted values, in milliseconds. Returns NaN without
/// values.
fn percentile(sorted: &[Nanos], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .map_or(f64::NAN, |&value| millis(value))
}

fn millis(time: Nanos) -> f64 {
    time as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equal_rates() {
        let results = |rates: &[usize]| {
            let samples = rates.iter().map(|&count| Samples {
                latencies: vec![1_000_000; count],
                late: 0,
            });
            Results::new(samples.collect(), Vec::new(), Vec::new(), SECOND)
        };
        assert_eq!(
            (results(&[5, 5]).fairness(), results(&[8, 0]).fairness()),
            (1.0, 0.5)
        );
        assert_eq!((results(&[3]).rate(), results(&[3]).p99_ms), (3.0, 1.0));
    }
}
