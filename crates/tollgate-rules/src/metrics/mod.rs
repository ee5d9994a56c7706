//! Metrics through the `metrics` facade, behind the feature of that name. Labels come from files,
//! never from a request.

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
