//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from
//! configuration, never from a request.
//! What is recorded is in `series.rs`. Gauges of stores are in `store/metrics/`, those of layers in
//! tollgate-tower.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

use series::add_waiting;
pub(crate) use series::{LimiterMetrics, PermitMetrics, TenantMetrics};

/// Counts one caller that waits for units or for its turn, until it is dropped.
pub(crate) struct WaitingGauge(());

impl WaitingGauge {
    pub(crate) fn new() -> Self {
        add_waiting(1.0);
        Self(())
    }
}

impl Drop for WaitingGauge {
    fn drop(&mut self) {
        add_waiting(-1.0);
    }
}
