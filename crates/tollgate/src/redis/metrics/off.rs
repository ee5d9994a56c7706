//! Stands in without the feature: the same functions, which do nothing.

use super::StoreState;
use crate::model::lease::LeaseCounts;

#[derive(Debug, Default)]
pub(crate) struct StoreMetrics(());

impl StoreMetrics {
    pub(crate) const IS_ON: bool = false;

    pub(crate) fn record(&self, _: &str, _: &StoreState) {}

    pub(crate) fn record_leases(&self, _: &str, _: &LeaseCounts) {}
}
