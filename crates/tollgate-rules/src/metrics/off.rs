//! Stands in without the feature: the same functions, which do nothing.
//! What they do with the feature is in `rules.rs`.

use crate::Usage;

#[derive(Debug, Default)]
pub(crate) struct RuleMetrics(());

#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSeries(());

impl RuleMetrics {
    pub(crate) fn record(&self, _: &RuleSeries, _: &str, _: Usage) {}

    pub(crate) fn record_override(&self, _: Usage) {}

    pub(crate) fn record_load(&self, _: bool) {}
}
