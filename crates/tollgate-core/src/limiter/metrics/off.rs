//! Stands in without the feature: the same functions, which do nothing.
//! What they do with the feature is in `series.rs`; both need the same signatures.

use crate::{
    Decision, Error, PolicySet,
    store::{Deadline, Settlement},
};

#[derive(Debug, Default)]
pub(crate) struct LimiterMetrics(());

impl LimiterMetrics {
    pub(crate) const IS_ON: bool = false;

    pub(crate) fn record_decision(&self, _: &str, _: &Decision, _: Option<Deadline>) {}

    pub(crate) fn record_error(&self, _: &str, _: &PolicySet, _: &Error) {}

    pub(crate) fn record_commit(&self, _: &str, _: Option<Settlement>) {}

    pub(crate) fn record_exception(&self, _: &str, _: &str) {}

    pub(crate) fn outage_began(&self, _: &str) {}

    pub(crate) fn outage_ended(&self, _: &str) {}
}

pub(super) fn add_waiting(_: f64) {}

#[derive(Debug, Default)]
pub(crate) struct TenantMetrics(());

impl TenantMetrics {
    pub(crate) fn record_fetch(&self, _: &str, _: bool) {}

    pub(crate) fn record_cached(&self, _: &str, _: usize) {}

    pub(crate) fn outage_began(&self, _: &str) {}

    pub(crate) fn outage_ended(&self, _: &str) {}
}

#[derive(Debug, Default)]
pub(crate) struct PermitMetrics(());

impl PermitMetrics {
    pub(crate) fn new(_: &str) -> Self {
        Self(())
    }

    pub(crate) fn acquired(&self) {}

    pub(crate) fn released(&self) {}

    pub(crate) fn denied(&self) {}

    pub(crate) fn failed(&self) {}

    pub(crate) fn lost(&self) {}

    pub(crate) fn waits(&self) {}

    pub(crate) fn waited(&self) {}
}
