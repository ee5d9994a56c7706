//! The time series that a piece of work records through the `metrics` facade, by name and labels.
//! Which series there are, and what they count, is known to the tests.

use std::{collections::BTreeMap, future::Future};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Stores time series. A name is that of the metric, a space, and the labels as `key=value`.
#[derive(Debug)]
pub struct Series(pub BTreeMap<String, DebugValue>);

impl Series {
    /// Runs `work` on a thread with a recorder of its own, and returns what it recorded.
    ///
    /// # Panics
    ///
    /// Inside of a tokio runtime.
    pub fn of(work: impl Future<Output = ()>) -> Self {
        let mut series = None;
        Self::record(async |snapshotter| {
            work.await;
            series = Some(Self::take(&snapshotter, |_, _| ()));
        });
        series.expect("the work has ended")
    }

    /// Runs `work` on this thread with a recorder of its own. It takes [snapshots](Self::described)
    /// itself.
    ///
    /// # Panics
    ///
    /// Inside of a tokio runtime.
    pub fn record<F: Future<Output = ()>>(work: impl FnOnce(Snapshotter) -> F) {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        metrics::with_local_recorder(&recorder, || runtime.block_on(work(snapshotter)));
    }

    /// Takes a snapshot, which sets counters and gauges to zero.
    ///
    /// # Panics
    ///
    /// When a series has no unit or no description.
    #[must_use]
    pub fn described(snapshotter: &Snapshotter) -> Self {
        Self::take(snapshotter, |name, is_described| {
            assert!(is_described, "{name} is not described");
        })
    }

    fn take(snapshotter: &Snapshotter, look: impl Fn(&str, bool)) -> Self {
        let series = snapshotter.snapshot().into_vec().into_iter();
        let series = series.map(|(key, unit, description, value)| {
            let labels: Vec<_> = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            let name = format!("{} {}", key.key().name(), labels.join(" "));
            look(&name, unit.is_some() && description.is_some());
            (name, value)
        });
        Self(series.collect())
    }

    /// Returns the value of a counter.
    ///
    /// # Panics
    ///
    /// When there is no such counter.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(DebugValue::Counter(count)) => *count,
            other => panic!("{name}: {other:?} in {:?}", self.0.keys()),
        }
    }

    /// Asserts the values of counters and gauges: a line for each, with its name, its labels and its
    /// value.
    ///
    /// # Panics
    ///
    /// When a value is another one, or there is no such series.
    pub fn assert_counts(&self, expected: &str) {
        for line in expected
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            let found = match self.gauge(name) {
                Some(value) => value.to_string(),
                None => self.count(name).to_string(),
            };
            assert_eq!(found, value, "{name}");
        }
    }

    /// Returns the value of a gauge. `None` when there is no such gauge.
    #[must_use]
    pub fn gauge(&self, name: &str) -> Option<f64> {
        match self.0.get(name) {
            Some(DebugValue::Gauge(value)) => Some(value.into_inner()),
            _ => None,
        }
    }

    /// Returns the values of a histogram.
    ///
    /// # Panics
    ///
    /// When there is no such histogram.
    #[must_use]
    pub fn durations(&self, name: &str) -> Vec<f64> {
        match self.0.get(name) {
            Some(DebugValue::Histogram(values)) => {
                values.iter().map(|value| value.into_inner()).collect()
            }
            other => panic!("{name}: {other:?} in {:?}", self.0.keys()),
        }
    }
}
