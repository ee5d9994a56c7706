//! The report of replicas, as programs read it: as JSON of `tollgate status`, and of the console.
//! As text it is laid out in `commands/status.rs`.

use serde::Serialize;
use tollgate::store::{Publication, ReportedRules};

use super::{Replica, ReplicaSnapshot, title};
use crate::trace::shown_time;

/// The report of replicas, as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct StatusReport {
    pub(crate) replicas: Vec<ReplicaRow>,
    /// The processes that are counted with the replicas, and report nothing.
    pub(crate) unreported: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// A replica, as programs read it.
#[derive(Debug, Serialize)]
pub(crate) struct ReplicaRow {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) process: String,
    pub(crate) store: u32,
    pub(crate) version: String,
    pub(crate) silent_ms: u64,
    pub(crate) is_silent: bool,
    pub(crate) rules: Vec<RulesRow>,
    pub(crate) limiters: Vec<LimiterRow>,
    pub(crate) limiters_left_out: usize,
    #[serde(skip)]
    pub(crate) title: String,
}

/// The rules of a replica.
#[derive(Debug, Serialize)]
pub(crate) struct RulesRow {
    pub(crate) source: String,
    pub(crate) digest: Option<String>,
    /// The time since which they are in force, in RFC 3339 by the clock of the server.
    pub(crate) since: String,
    pub(crate) age_ms: u64,
    /// Newer rules are refused for this time.
    pub(crate) refused_ms: Option<u64>,
}

/// The limits of a limiter, as a replica enforces them.
#[derive(Debug, Serialize)]
pub(crate) struct LimiterRow {
    pub(crate) limiter: String,
    pub(crate) policies: Vec<String>,
    pub(crate) enforced: Option<u8>,
}

impl From<ReplicaSnapshot> for StatusReport {
    fn from(snapshot: ReplicaSnapshot) -> Self {
        let row = |replica: &Replica| ReplicaRow::new(replica, snapshot.now_us);
        Self {
            replicas: snapshot.replicas.iter().map(row).collect(),
            unreported: snapshot.unreported.into_iter().collect(),
            warnings: snapshot.warnings,
        }
    }
}

impl ReplicaRow {
    fn new(replica: &Replica, now_us: u64) -> Self {
        let report = &replica.report;
        let at_us = now_us.saturating_sub(replica.silent.as_micros() as u64);
        let rules = |rules: &ReportedRules| RulesRow {
            source: rules.source.clone(),
            digest: rules.digest.map(|digest| digest.to_string()),
            since: shown_time(at_us.saturating_sub(rules.age.as_micros() as u64)),
            age_ms: (rules.age + replica.silent).as_millis() as u64,
            refused_ms: rules
                .refused
                .map(|refused| (refused + replica.silent).as_millis() as u64),
        };
        Self {
            host: report.host.clone(),
            pid: report.pid,
            process: report.process.clone(),
            store: report.store,
            version: report.version.clone(),
            silent_ms: replica.silent.as_millis() as u64,
            is_silent: replica.is_silent(),
            rules: report.rules.iter().map(rules).collect(),
            limiters: report
                .limits
                .iter()
                .map(|text| LimiterRow::new(text))
                .collect(),
            limiters_left_out: report.left_out,
            title: title(report),
        }
    }
}

impl LimiterRow {
    /// Reads the limits as they are published. Those of a newer version are shown as they stand.
    fn new(text: &str) -> Self {
        match text.parse::<Publication>() {
            Ok(limits) => Self {
                limiter: limits.name().to_owned(),
                policies: limits.policies().iter().map(ToString::to_string).collect(),
                enforced: limits.enforcement().map(tollgate::Enforcement::percent),
            },
            Err(_) => Self {
                limiter: text
                    .rsplit_once("; limiter ")
                    .map_or("", |(_, name)| name)
                    .to_owned(),
                policies: vec![text.to_owned()],
                enforced: None,
            },
        }
    }
}
