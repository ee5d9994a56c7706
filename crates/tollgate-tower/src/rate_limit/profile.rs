//! Profiles: the headers and the metrics of policy sets.

use std::{convert::Infallible, sync::Arc};

use foldhash::fast::RandomState;
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use tollgate::PolicySet;

use crate::{
    headers::{HeaderOptions, HeaderWriter},
    labels::MetricLabels,
    metrics::{LimitMetrics, LookedUpMetrics},
    rate_limit::wait,
};

/// Stores the headers and the metrics of the decisions by one policy set.
pub(crate) struct Profile {
    pub(crate) headers: HeaderWriter,
    pub(crate) metrics: LimitMetrics,
    pub(crate) has_queue: bool,
}

impl Profile {
    pub(crate) fn new(policies: &PolicySet, headers: &Arc<HeaderOptions>, metrics: LimitMetrics) -> Self {
        Self { headers: HeaderWriter::new(headers, policies), metrics, has_queue: wait::has_queue(policies) }
    }
}

/// Keeps the profiles of policy sets that are looked up.
///
/// A profile belongs to the content of a set, so tenants with equal policies share one.
pub(crate) struct Profiles {
    cache: Cache<PolicySet, Arc<Profile>, UnitWeighter, RandomState>,
    metrics: LookedUpMetrics,
}

/// Bounds the profiles. A service may have a policy set for each of its tenants.
const MAX_PROFILES: usize = 1024;

impl Profiles {
    pub(crate) fn new() -> Self {
        Self {
            cache: Cache::with(
                MAX_PROFILES,
                MAX_PROFILES as u64,
                UnitWeighter,
                RandomState::default(),
                DefaultLifecycle::default(),
            ),
            metrics: LookedUpMetrics::default(),
        }
    }

    /// Returns the profile of a set.
    pub(crate) fn of(&self, policies: &PolicySet, headers: &Arc<HeaderOptions>, labels: &MetricLabels) -> Arc<Profile> {
        if let Some(profile) = self.cache.get(policies) {
            return profile;
        }
        let create =
            || Ok::<_, Infallible>(Arc::new(Profile::new(policies, headers, self.metrics.of(policies, labels))));
        let Ok(profile) = self.cache.get_or_insert_with(policies, create);
        profile
    }
}
