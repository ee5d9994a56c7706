//! The figures of a prefix at one moment.
//! It is filled in `collector.rs` and `metrics.rs`, and laid out in `sections.rs`.

use serde::Serialize;

use tollgate_operator::states::{PublishedLimiter, ScanReport, StateEntry};

/// Describes a prefix at one moment. `None` is a figure that is not known yet, or that no source
/// gives.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Snapshot {
    /// The time by RFC 3339.
    pub(crate) time: Option<String>,
    /// The prefix of the store's keys. `None` when no server is named.
    pub(crate) prefix: Option<String>,
    /// The server. `None` when none is named.
    pub(crate) redis: Option<SourceStatus>,
    /// The findings of the scan. `None` when the server is away, or none is named.
    pub(crate) scan: Option<ScanFigures>,
    pub(crate) endpoints: Vec<SourceStatus>,
    pub(crate) policies: Vec<PolicyFigures>,
    pub(crate) limiters: Vec<LimiterFigures>,
    pub(crate) rules: Vec<RuleFigures>,
    /// The limiters that services publish.
    pub(crate) published: Vec<PublishedLimiter>,
    /// Names the texts of limiters that could not be read.
    pub(crate) warnings: Vec<String>,
    pub(crate) stores: Vec<StoreFigures>,
    /// The keys with the most use.
    pub(crate) states: Vec<StateEntry>,
    pub(crate) denied_keys: Vec<DeniedKey>,
}

impl Snapshot {
    /// Returns whether a source was read.
    pub(crate) fn is_read(&self) -> bool {
        self.scan.is_some()
            || self
                .endpoints
                .iter()
                .any(|endpoint| endpoint.failure.is_none())
    }
}

/// Describes a server or a page of metrics, and whether it answers.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SourceStatus {
    pub(crate) address: String,
    /// The reason why it does not answer.
    pub(crate) failure: Option<String>,
    /// The seconds since it stopped to answer.
    pub(crate) away_seconds: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ScanFigures {
    #[serde(flatten)]
    pub(crate) report: ScanReport,
    /// The time of one command, in seconds.
    pub(crate) round_trip_seconds: f64,
    pub(crate) scan_seconds: f64,
    /// The time since the scan before, by the server's clock. The rates of units are those of this
    /// time.
    pub(crate) seconds_since_last: Option<f64>,
    /// n, where one key of n is compared with the scan before.
    pub(crate) compared_part: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PolicyFigures {
    pub(crate) policy: String,
    pub(crate) algorithm: Option<&'static str>,
    pub(crate) keys: Option<u64>,
    /// The keys whose next request is denied.
    pub(crate) limited_keys: Option<u64>,
    /// The units that are spent, at least, by Redis.
    pub(crate) units_per_second: Option<f64>,
    /// The decisions, by the metrics.
    pub(crate) allowed_per_second: Option<f64>,
    pub(crate) denied_per_second: Option<f64>,
    /// The denials of a layer that passed, in shadow mode or outside of the enforced share. The
    /// limiters count them as denied.
    pub(crate) shadowed_per_second: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LimiterFigures {
    pub(crate) limiter: String,
    pub(crate) allowed_per_second: Option<f64>,
    pub(crate) denied_per_second: Option<f64>,
    pub(crate) failed_per_second: Option<f64>,
    /// Decisions without the store.
    pub(crate) degraded_per_second: Option<f64>,
    /// The reason of most of them.
    pub(crate) degraded_reason: Option<String>,
    pub(crate) p99_seconds: Option<f64>,
    /// The processes in which the limiter is in an outage now.
    pub(crate) processes_in_outage: Option<u64>,
    /// The outages since the processes were started.
    pub(crate) outages: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RuleFigures {
    pub(crate) rule: String,
    pub(crate) within_per_second: Option<f64>,
    pub(crate) over_per_second: Option<f64>,
    pub(crate) shadow_per_second: Option<f64>,
}

/// Describes a store as the running services see it. Counts are the sums over all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct StoreFigures {
    pub(crate) store: String,
    pub(crate) servers: u64,
    pub(crate) connected: u64,
    pub(crate) breakers_open: u64,
    pub(crate) queued: u64,
    /// The longest of all processes.
    pub(crate) round_trip_seconds: Option<f64>,
    pub(crate) replicas: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DeniedKey {
    pub(crate) name: String,
    pub(crate) denials: u64,
}
