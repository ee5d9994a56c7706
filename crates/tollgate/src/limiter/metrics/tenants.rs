use std::sync::OnceLock;

use metrics::{Counter, Gauge, Label, Unit, counter, describe_counter, describe_gauge, gauge};

const FETCHES: &str = "tollgate_tenant_fetches_total";
const OUTAGE: &str = "tollgate_tenant_outage";
const CACHED: &str = "tollgate_tenants_cached";

/// Stores the series of the limits of tenants. They are registered with the first fetch.
#[derive(Default)]
pub(crate) struct TenantMetrics(OnceLock<Series>);

struct Series {
    succeeded: Counter,
    failed: Counter,
    is_away: Gauge,
    cached: Gauge,
}

impl TenantMetrics {
    /// Counts a fetch. `name` is the name of the default limiter.
    pub(crate) fn record_fetch(&self, name: &str, has_succeeded: bool) {
        let series = self.series(name);
        if has_succeeded { &series.succeeded } else { &series.failed }.increment(1);
    }

    /// Sets the number of tenants in the cache.
    pub(crate) fn record_cached(&self, name: &str, cached: usize) {
        self.series(name).cached.set(cached as f64);
    }

    pub(crate) fn outage_began(&self, name: &str) {
        self.series(name).is_away.set(1.0);
    }

    pub(crate) fn outage_ended(&self, name: &str) {
        self.series(name).is_away.set(0.0);
    }

    fn series(&self, name: &str) -> &Series {
        self.0.get_or_init(|| Series::new(name))
    }
}

impl Series {
    fn new(name: &str) -> Self {
        describe_counter!(FETCHES, Unit::Count, "Fetches of the limits of tenants, by limiter and outcome.");
        describe_gauge!(OUTAGE, Unit::Count, "1 while the limits of tenants cannot be fetched, 0 otherwise.");
        describe_gauge!(CACHED, Unit::Count, "Tenants in the cache, as of the last fetch.");
        let limiter = || Label::new("limiter", name.to_owned());
        let fetches = |outcome: &'static str| counter!(FETCHES, [limiter(), Label::new("outcome", outcome)].to_vec());
        Self {
            succeeded: fetches("succeeded"),
            failed: fetches("failed"),
            is_away: gauge!(OUTAGE, [limiter()].to_vec()),
            cached: gauge!(CACHED, [limiter()].to_vec()),
        }
    }
}
