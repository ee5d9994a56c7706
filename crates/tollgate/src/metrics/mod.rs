//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from configuration, never
//! from a request.

#[cfg(feature = "metrics")]
mod limiter;
#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod permits;
#[cfg(all(feature = "metrics", feature = "redis"))]
mod store;
#[cfg(feature = "metrics")]
mod tenants;

#[cfg(feature = "metrics")]
pub(crate) use limiter::LimiterMetrics;
#[cfg(not(feature = "metrics"))]
pub(crate) use off::{LimiterMetrics, PermitMetrics, TenantMetrics};
#[cfg(feature = "metrics")]
pub(crate) use permits::PermitMetrics;
#[cfg(all(feature = "metrics", feature = "redis"))]
pub(crate) use store::{StoreMetrics, StoreState};
#[cfg(feature = "metrics")]
pub(crate) use tenants::TenantMetrics;
