use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_rules::{LoadCounts, Usage};

#[cfg(feature = "server")]
use super::histogram::HistogramCounts;
use super::{histogram::Histogram, names::Names};

/// Counts what a [`RateLimitService`](crate::RateLimitService) decides, under the names of Envoy's
/// service.
///
/// | name | counts |
/// |---|---|
/// | `ratelimit.service.rate_limit.RULE.total_hits` | units that requests asked for |
/// | `ratelimit.service.rate_limit.RULE.within_limit` | units of checks within the limit |
/// | `ratelimit.service.rate_limit.RULE.near_limit` | units above four fifths of the limit, and not over it |
/// | `ratelimit.service.rate_limit.RULE.over_limit` | units over the limit |
/// | `ratelimit.service.rate_limit.RULE.over_limit_with_local_cache` | units that were denied without the store |
/// | `ratelimit.service.rate_limit.RULE.shadow_mode` | units over the limit of a rule in shadow mode |
/// | `ratelimit.service.rate_limit.unknown.domain_not_found` | descriptors of domains without rules |
/// | `ratelimit.service.call.should_rate_limit.redis_error` | requests that the store did not decide |
/// | `ratelimit.service.call.should_rate_limit.service_error` | requests that are wrong, or came before the rules |
/// | `ratelimit.service.config_load_success`, `…_error` | loads of rules |
/// | `ratelimit.service.global_shadow_mode` | requests that pass only because of the global shadow mode |
/// | `ratelimit_server.accept_error` | connections that the system did not accept, because no file descriptor was left |
/// | `ratelimit_server.connection_limit` | times that a port reached its most connections |
/// | `ratelimit_server.ShouldRateLimit.total_requests`, `.response_time` | gRPC calls, and their times in milliseconds |
///
/// `RULE` is the domain, and the keys and values of the rule: see
/// [`Match::metric_name`](tollgate_rules::Match::metric_name). The first 10 000 names have counters
/// of their own, and all further names are counted as `other`. A name of more than 256 bytes is cut
/// and ends in a digest, and control characters become `_`. So all names together take at most
/// about 5 MiB.
///
/// A clone is cheap, and shares the counts.
#[derive(Clone, Default)]
pub struct Metrics(Arc<MetricsInner>);

#[derive(Default)]
struct MetricsInner {
    rules: Names<RuleCounters>,
    unknown_domains: AtomicU64,
    service_errors: AtomicU64,
    store_errors: AtomicU64,
    shadowed: AtomicU64,
    accept_errors: AtomicU64,
    full_ports: AtomicU64,
    calls: AtomicU64,
    response_time: Histogram,
}

#[derive(Debug, Default)]
struct RuleCounters {
    total: AtomicU64,
    within: AtomicU64,
    near: AtomicU64,
    over: AtomicU64,
    over_from_cache: AtomicU64,
    shadow: AtomicU64,
}

/// The method whose calls are counted.
pub(super) const METHOD: &str = "ShouldRateLimit";

impl Metrics {
    /// Creates metrics in which nothing is counted.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn count_usage(&self, rule: &str, usage: Usage) {
        self.0.rules.with(rule, |counters| {
            for (counter, units) in [
                (&counters.total, usage.total),
                (&counters.within, usage.within),
                (&counters.near, usage.near),
                (&counters.over, usage.over),
                (&counters.over_from_cache, usage.over_from_cache),
                (&counters.shadow, usage.shadow),
            ] {
                if units > 0 {
                    counter.fetch_add(units, Ordering::Relaxed);
                }
            }
        });
    }

    /// Counts descriptors of a domain without rules. All such domains have one name, as clients
    /// choose theirs.
    pub(crate) fn count_unknown_domain(&self, descriptors: u64) {
        self.0
            .unknown_domains
            .fetch_add(descriptors, Ordering::Relaxed);
    }

    pub(crate) fn count_service_error(&self) {
        self.0.service_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_store_error(&self) {
        self.0.store_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_shadowed(&self) {
        self.0.shadowed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_call(&self, time: Duration) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        self.0.response_time.record(time);
    }

    #[cfg(feature = "server")]
    pub(crate) fn count_accept_error(&self) {
        self.0.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(feature = "server")]
    pub(crate) fn count_full_port(&self) {
        self.0.full_ports.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the names and the values of all counters that are not 0. `loads` comes from
    /// [`Rules::loads`](tollgate_rules::Rules::loads).
    #[must_use]
    pub fn counters(&self, loads: LoadCounts) -> Vec<(String, u64)> {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut all = Vec::new();
        for (rule, counters) in self.0.rules.sorted() {
            for (name, count) in [
                ("near_limit", &counters.near),
                ("over_limit", &counters.over),
                ("over_limit_with_local_cache", &counters.over_from_cache),
                ("shadow_mode", &counters.shadow),
                ("total_hits", &counters.total),
                ("within_limit", &counters.within),
            ] {
                all.push((
                    format!("ratelimit.service.rate_limit.{rule}.{name}"),
                    value(count),
                ));
            }
        }
        for (name, count) in [
            (
                "call.should_rate_limit.redis_error",
                value(&self.0.store_errors),
            ),
            (
                "call.should_rate_limit.service_error",
                value(&self.0.service_errors),
            ),
            ("config_load_error", loads.failed),
            ("config_load_success", loads.succeeded),
            ("global_shadow_mode", value(&self.0.shadowed)),
            (
                "rate_limit.unknown.domain_not_found",
                value(&self.0.unknown_domains),
            ),
        ] {
            all.push((format!("ratelimit.service.{name}"), count));
        }
        for (name, count) in [
            (format!("{METHOD}.total_requests"), &self.0.calls),
            ("accept_error".to_owned(), &self.0.accept_errors),
            ("connection_limit".to_owned(), &self.0.full_ports),
        ] {
            all.push((format!("ratelimit_server.{name}"), value(count)));
        }
        all.retain(|(_, count)| *count > 0);
        all
    }

    #[cfg(feature = "server")]
    pub(super) fn response_times(&self) -> HistogramCounts {
        self.0.response_time.counts()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("calls", &self.0.calls)
            .finish_non_exhaustive()
    }
}
