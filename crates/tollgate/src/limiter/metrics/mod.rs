//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from configuration, never
//! from a request.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod series;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{LimiterMetrics, PermitMetrics, TenantMetrics};
#[cfg(feature = "metrics")]
pub(crate) use series::{LimiterMetrics, PermitMetrics, TenantMetrics};
