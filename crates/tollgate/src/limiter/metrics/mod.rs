//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from
//! configuration, never from a request.

#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod series;

pub(crate) use series::{LimiterMetrics, PermitMetrics, TenantMetrics};
