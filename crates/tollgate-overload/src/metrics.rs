//! The gauges of an adaptive limiter, behind the feature `metrics`.
//! Requests that are shed are counted with all other rejections, by the gate of `tollgate-tower`.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, reason = "nothing is recorded without the feature")
)]

#[cfg(feature = "metrics")]
use std::sync::OnceLock;

#[cfg(feature = "metrics")]
use metrics::{Gauge, Unit, describe_gauge, gauge};

/// Stores the series of a limiter. They are registered with the first window, when the recorder is
/// there.
pub(crate) struct AdaptiveMetrics {
    #[cfg(feature = "metrics")]
    name: String,
    #[cfg(feature = "metrics")]
    gauges: OnceLock<[Gauge; 3]>,
}

impl AdaptiveMetrics {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            name: name.to_owned(),
            #[cfg(feature = "metrics")]
            gauges: OnceLock::new(),
        }
    }

    /// Records the result of a window.
    pub(crate) fn record(&self, limit: u32, in_flight: u32, latency_us: Option<u64>) {
        #[cfg(feature = "metrics")]
        {
            let [limits, most_in_flight, latency] = self.gauges.get_or_init(|| self.register());
            limits.set(limit);
            most_in_flight.set(in_flight);
            if let Some(latency_us) = latency_us {
                latency.set(latency_us as f64 / 1e6);
            }
        }
    }

    #[cfg(feature = "metrics")]
    fn register(&self) -> [Gauge; 3] {
        describe_gauge!(
            "tollgate_adaptive_limit",
            Unit::Count,
            "Concurrency limit of an adaptive limiter."
        );
        describe_gauge!(
            "tollgate_adaptive_in_flight",
            Unit::Count,
            "Most requests in flight in the last window of an adaptive limiter."
        );
        describe_gauge!(
            "tollgate_adaptive_latency_seconds",
            Unit::Seconds,
            "Mean latency of the last window of an adaptive limiter."
        );
        let gauge = |metric: &'static str| gauge!(metric, "limiter" => self.name.clone());
        [
            "tollgate_adaptive_limit",
            "tollgate_adaptive_in_flight",
            "tollgate_adaptive_latency_seconds",
        ]
        .map(gauge)
    }
}
