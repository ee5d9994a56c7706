//! Holds the figures of a run.

use crate::time::{Nanos, SECOND, STEP};

/// Collects what happens to the checks of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    pub(crate) latencies: Vec<Nanos>,
    pub(crate) late: usize,
}

/// Holds figures over time, one value for each step.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) seconds: Vec<f64>,
    /// Decisions per second, for each process.
    pub(crate) decisions: Vec<Vec<f64>>,
    /// Keys under way, for each process.
    pub(crate) under_way: Vec<Vec<f64>>,
    /// The longest wait at the server, in milliseconds.
    pub(crate) wait_ms: Vec<f64>,
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
    pub(crate) course: Course,
}

impl Course {
    pub(crate) fn new(processes: usize) -> Self {
        let each = || vec![Vec::new(); processes];
        Self { seconds: Vec::new(), decisions: each(), under_way: each(), wait_ms: Vec::new() }
    }

    /// Records a step.
    pub(crate) fn step(&mut self, now: Nanos, decided: &[usize], under_way: Vec<usize>, wait: Nanos) {
        self.seconds.push(now as f64 / SECOND as f64);
        for (at, &decided) in decided.iter().enumerate() {
            self.decisions[at].push(decided as f64 * SECOND as f64 / STEP as f64);
        }
        for (at, keys) in under_way.into_iter().enumerate() {
            self.under_way[at].push(keys as f64);
        }
        self.wait_ms.push(millis(wait));
    }

    /// Returns the sum over all processes, for each step.
    pub(crate) fn total(&self) -> Vec<f64> {
        (0..self.seconds.len()).map(|step| self.decisions.iter().map(|process| process[step]).sum()).collect()
    }
}

impl Results {
    pub(crate) fn new(samples: Vec<Samples>, mut waits: Vec<Nanos>, course: Course, time: Nanos) -> Self {
        let seconds = time as f64 / SECOND as f64;
        let rates: Vec<f64> = samples.iter().map(|it| it.latencies.len() as f64 / seconds).collect();
        let late: usize = samples.iter().map(|it| it.late).sum();
        let mut latencies: Vec<Nanos> = samples.into_iter().flat_map(|it| it.latencies).collect();
        latencies.sort_unstable();
        waits.sort_unstable();
        Self {
            rates,
            p50_ms: percentile(&latencies, 0.5),
            p99_ms: percentile(&latencies, 0.99),
            late: late as f64 / (late + latencies.len()).max(1) as f64,
            wait_ms: waits.iter().map(|&wait| millis(wait)).sum::<f64>() / waits.len().max(1) as f64,
            wait_p99_ms: percentile(&waits, 0.99),
            course,
        }
    }

    /// Returns the decisions per second of all processes.
    pub(crate) fn rate(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Returns Jain's index of fairness: 1 when all processes have the same rate, 1/n when one has all.
    ///
    /// Source: Jain, Chiu, Hawe, "A quantitative measure of fairness", DEC-TR-301, 1984.
    pub(crate) fn fairness(&self) -> f64 {
        let squares: f64 = self.rates.iter().map(|rate| rate * rate).sum();
        self.rate().powi(2) / (self.rates.len() as f64 * squares)
    }

    /// Returns the lowest rate of a process divided by the highest one.
    pub(crate) fn lowest_to_highest(&self) -> f64 {
        let highest = self.rates.iter().copied().fold(0.0, f64::max);
        self.rates.iter().copied().fold(f64::INFINITY, f64::min) / highest
    }
}

/// Returns the value at this share of the sorted values, in milliseconds. Returns NaN without values.
fn percentile(sorted: &[Nanos], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |&value| millis(value))
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
            let samples = rates.iter().map(|&count| Samples { latencies: vec![1_000_000; count], late: 0 });
            Results::new(samples.collect(), Vec::new(), Course::new(rates.len()), SECOND)
        };
        assert_eq!((results(&[5, 5]).fairness(), results(&[8, 0]).fairness()), (1.0, 0.5));
        assert_eq!(results(&[2, 8]).lowest_to_highest(), 0.25);
        assert_eq!((results(&[3]).rate(), results(&[3]).p99_ms), (3.0, 1.0));
    }
}
