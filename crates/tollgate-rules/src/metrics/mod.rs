//! Metrics through the `metrics` facade, behind the feature of that name. Labels come from files,
//! never from a request.
//! Counters of Envoy's own names are kept by tollgate-envoy. Denied keys are counted by the core.

#[cfg(not(feature = "metrics"))]
mod off;
#[cfg(feature = "metrics")]
mod rules;
mod usage;

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{RuleMetrics, RuleSeries};
#[cfg(feature = "metrics")]
pub(crate) use rules::{RuleMetrics, RuleSeries};
pub use usage::Usage;
