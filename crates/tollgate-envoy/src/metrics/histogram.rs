//! Counts times by buckets, without a lock.
//! How they are written for a monitor is in `prometheus.rs` and `statsd.rs`.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The upper bounds of the buckets. Those from 5 ms on are the defaults of Prometheus clients,
/// which Envoy's service has.
pub(super) const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];

const BUCKETS: usize = BOUNDS_US.len() + 1;

/// Counts times by buckets.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    not(feature = "server"),
    allow(dead_code, reason = "only the server exports them")
)]
pub(super) struct HistogramCounts {
    /// The times of each bucket. The last one has no bound.
    pub(super) buckets: [u64; BUCKETS],
    pub(super) sum_us: u64,
}

impl Histogram {
    pub(super) fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    #[cfg_attr(
        not(feature = "server"),
        allow(dead_code, reason = "only the server exports them")
    )]
    pub(super) fn counts(&self) -> HistogramCounts {
        HistogramCounts {
            buckets: std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_the_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for us in [0, 50, 51, 1_000, 11_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let counts = histogram.counts();
        assert_eq!(
            (
                counts.buckets[0],
                counts.buckets[1],
                counts.buckets[4],
                counts.buckets[BUCKETS - 1]
            ),
            (2, 1, 1, 1)
        );
        assert_eq!(counts.sum_us, 11_001_101);
    }
}
