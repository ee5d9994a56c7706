//! Metrics through the `metrics` facade, behind the feature of that name: without it, nothing is
//! counted. Labels come from files, never from a request.
//! The series are in `rules.rs`. Counters of Envoy's own names are kept by tollgate-envoy. Denied keys
//! are counted by the core.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, reason = "nothing is counted without the feature")
)]

#[cfg(feature = "metrics")]
mod rules;
mod usage;

#[cfg(feature = "metrics")]
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

pub use usage::Usage;

/// Stores the series of the rules of one handle. A name keeps its series when the rules are
/// replaced.
#[derive(Default)]
pub(crate) struct RuleMetrics(#[cfg(feature = "metrics")] rules::AllSeries);

/// Remembers the series of one rule, so that a check needs no look-up.
#[derive(Clone, Default)]
pub(crate) struct RuleSeries(#[cfg(feature = "metrics")] OnceLock<Arc<rules::Series>>);

impl RuleMetrics {
    /// Counts units of the rule that has this name and these series.
    pub(crate) fn record(&self, series: &RuleSeries, name: &str, usage: Usage) {
        #[cfg(feature = "metrics")]
        series.0.get_or_init(|| self.0.of(name)).record(usage);
    }

    /// Counts units of a limit that the request brought along.
    pub(crate) fn record_override(&self, usage: Usage) {
        #[cfg(feature = "metrics")]
        self.0.of_overrides().record(usage);
    }

    /// Counts a load, and notes whether the files are those in force.
    pub(crate) fn record_load(&self, has_succeeded: bool) {
        #[cfg(feature = "metrics")]
        self.0.of_loads().record(has_succeeded);
    }

    /// Notes since when other rules are in force.
    pub(crate) fn record_change(&self, at: SystemTime) {
        #[cfg(feature = "metrics")]
        self.0.of_loads().record_change(at);
    }
}

tollgate::debug_fields! { RuleMetrics: .. }
