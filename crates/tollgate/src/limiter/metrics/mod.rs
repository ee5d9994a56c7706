//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from
//! configuration, never from a request.
//! What is recorded is in `series.rs`. Gauges of stores are in `store/metrics/`, those of layers in
//! tollgate-tower.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

pub(crate) use series::{LimiterMetrics, PermitMetrics, TenantMetrics};
