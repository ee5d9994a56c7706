//! The report of replicas, as programs read it: as JSON of `tollgate status`, and of the console.
//! It is a copy of a snapshot: `mod.rs` reads one.

use serde::Serialize;
use tollgate::store::{Publication, ReportedRules};

use super::{Replica, ReplicaSnapshot, title};
use crate::text::shown_time;

/// The report of replicas, as programs read it.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct StatusReport {
    /// The replicas, in the order of hosts.
    pub replicas: Vec<ReplicaRow>,
    /// The processes that are counted with the replicas, and report nothing.
    pub unreported: Vec<String>,
    /// Names the reports that could not be read.
    pub warnings: Vec<String>,
}

/// A replica, as programs read it.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ReplicaRow {
    /// The name of the host.
    pub host: String,
    /// The number of the process.
    pub pid: u32,
    /// The random name of the process.
    pub process: String,
    /// The number of the store within the process.
    pub store: u32,
    /// The version of the library.
    pub version: String,
    /// The milliseconds since its last report.
    pub silent_ms: u64,
    /// It counts as one that does not run any more.
    pub is_silent: bool,
    /// The rules that it enforces.
    pub rules: Vec<RulesRow>,
    /// The limiters that it publishes.
    pub limiters: Vec<LimiterRow>,
    /// The number of limiters for which the report had no room.
    pub limiters_left_out: usize,
    /// The name that people give it.
    #[serde(skip)]
    pub title: String,
}

/// The rules of a replica.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct RulesRow {
    /// The source of the rules, such as the path of their file.
    pub source: String,
    /// The digest of the rules. `None` when there are none.
    pub digest: Option<String>,
    /// The time since which they are in force, in RFC 3339 by the clock of the server.
    pub since: String,
    /// The milliseconds for which they are in force.
    pub age_ms: u64,
    /// Newer rules are refused for this time.
    pub refused_ms: Option<u64>,
}

/// The limits of a limiter, as a replica enforces them.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct LimiterRow {
    /// The name of the limiter.
    pub limiter: String,
    /// The policies as texts.
    pub policies: Vec<String>,
    /// The share of keys in percent that an operator can set.
    pub enforced: Option<u8>,
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
