//! Stands in without the feature: the same functions, which do nothing.

use crate::{Match, Usage};

#[derive(Debug, Default)]
pub(crate) struct RuleMetrics(());

#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSeries(());

impl RuleMetrics {
    pub(crate) fn record(&self, _: &Match<'_>, _: Usage) {}

    pub(crate) fn record_load(&self, _: bool) {}
}
