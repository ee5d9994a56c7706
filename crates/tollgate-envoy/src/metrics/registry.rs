//! The counters of Envoy's service: what each counts, its name, and its value.
//! Sending and showing them is in `statsd.rs`, `prometheus.rs` and `debug.rs`.

use std::{
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
/// | `ratelimit.service.rate_limit.RULE.total_negative_hits` | units that requests gave back |
/// | `ratelimit.service.rate_limit.RULE.within_limit` | units of checks within the limit |
/// | `ratelimit.service.rate_limit.RULE.near_limit` | units above four fifths of the limit, and not over it |
/// | `ratelimit.service.rate_limit.RULE.over_limit` | units over the limit |
/// | `ratelimit.service.rate_limit.RULE.over_limit_with_local_cache` | units that were denied without the store |
/// | `ratelimit.service.rate_limit.RULE.shadow_mode` | units over the limit of a rule in shadow mode |
/// | `ratelimit.service.rate_limit.unknown.domain_not_found` | descriptors of domains without rules |
/// | `ratelimit.service.call.should_rate_limit.redis_error` | requests of both services that the store did not decide |
/// | `ratelimit.service.call.should_rate_limit.service_error` | requests of both services that are wrong, or came before the rules |
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
    /// In the order of [`KINDS`].
    rules: Names<[AtomicU64; KINDS.len()]>,
    /// In the order of [`NAMES`].
    counters: [AtomicU64; NAMES.len()],
    response_time: Histogram,
}

/// Returns the units of one kind.
type Units = fn(&Usage) -> u64;

/// The counters of a rule: their names and their units.
const KINDS: [(&str, Units); 7] = [
    ("near_limit", |usage| usage.near),
    ("over_limit", |usage| usage.over),
    ("over_limit_with_local_cache", |usage| usage.over_from_cache),
    ("shadow_mode", |usage| usage.shadow),
    ("total_hits", |usage| usage.total),
    ("total_negative_hits", |usage| usage.refunded),
    ("within_limit", |usage| usage.within),
];

/// Selects a counter that belongs to no rule.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "server"),
    expect(dead_code, reason = "only the server has connections")
)]
pub(crate) enum Counted {
    StoreErrors,
    ServiceErrors,
    Shadowed,
    /// Descriptors of domains without rules. All such domains have one name, as clients choose
    /// theirs.
    UnknownDomains,
    Calls,
    AcceptErrors,
    FullPorts,
}

/// The names of the counters, in the order of [`Counted`].
const NAMES: [&str; 7] = [
    "ratelimit.service.call.should_rate_limit.redis_error",
    "ratelimit.service.call.should_rate_limit.service_error",
    "ratelimit.service.global_shadow_mode",
    "ratelimit.service.rate_limit.unknown.domain_not_found",
    "ratelimit_server.ShouldRateLimit.total_requests",
    "ratelimit_server.accept_error",
    "ratelimit_server.connection_limit",
];

/// The method whose calls are counted.
#[cfg(feature = "server")]
pub(super) const METHOD: &str = "ShouldRateLimit";

impl Metrics {
    /// Creates metrics in which nothing is counted.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn count_usage(&self, rule: &str, usage: Usage) {
        self.0.rules.with(rule, |counters| {
            for (counter, (_, units)) in counters.iter().zip(KINDS) {
                match units(&usage) {
                    0 => {}
                    units => drop(counter.fetch_add(units, Ordering::Relaxed)),
                }
            }
        });
    }

    pub(crate) fn count(&self, counted: Counted, number: u64) {
        self.0.counters[counted as usize].fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn count_call(&self, time: Duration) {
        self.count(Counted::Calls, 1);
        self.0.response_time.record(time);
    }

    /// Returns the names and the values of all counters that are not 0. `loads` comes from
    /// [`Rules::loads`](tollgate_rules::Rules::loads).
    #[must_use]
    pub fn counters(&self, loads: LoadCounts) -> Vec<(String, u64)> {
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut all = Vec::new();
        for (rule, counters) in self.0.rules.sorted() {
            for ((name, _), count) in KINDS.into_iter().zip(&*counters) {
                let name = format!("ratelimit.service.rate_limit.{rule}.{name}");
                all.push((name, value(count)));
            }
        }
        for (name, count) in [
            ("ratelimit.service.config_load_error", loads.failed),
            ("ratelimit.service.config_load_success", loads.succeeded),
        ] {
            all.push((name.to_owned(), count));
        }
        let counters = NAMES.into_iter().zip(&self.0.counters);
        all.extend(counters.map(|(name, count)| (name.to_owned(), value(count))));
        all.retain(|(_, count)| *count > 0);
        all
    }

    #[cfg(feature = "server")]
    pub(super) fn response_times(&self) -> HistogramCounts {
        self.0.response_time.counts()
    }
}

tollgate::debug_fields! { Metrics: counters = .0.counters, .. }
