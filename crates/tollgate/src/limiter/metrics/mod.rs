//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from configuration, never
//! from a request.

#[cfg(feature = "metrics")]
mod limiter;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod permits;
#[cfg(feature = "metrics")]
mod tenants;

#[cfg(feature = "metrics")]
pub(crate) use limiter::LimiterMetrics;
#[cfg(not(feature = "metrics"))]
pub(crate) use off::{LimiterMetrics, PermitMetrics, TenantMetrics};
#[cfg(feature = "metrics")]
pub(crate) use permits::PermitMetrics;
#[cfg(feature = "metrics")]
pub(crate) use tenants::TenantMetrics;
