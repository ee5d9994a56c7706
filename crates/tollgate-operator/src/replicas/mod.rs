//! The reports of replicas: the rules and the limits that they enforce.
//!
//! See [`Operator::replicas`](crate::Operator::replicas) for all of it as JSON. Use a [`ReplicaSnapshot`] to
//! follow replicas from one moment to the next.

// How reports are fetched is in `states/`.

mod row;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tollgate::store::ReplicaReport;

pub use row::{LimiterRow, ReplicaRow, RulesRow, StatusReport};

use crate::{error::OperatorError, states::Server, text::shown};

/// The most reports and processes that are read. A roll-out over more replicas cannot be waited for.
const MOST: usize = 5_000;

/// The longest report that is read. A replica writes 16 KiB at most.
const MOST_BYTES: usize = 65_536;

/// The name of a store of a process: no other process has the same.
pub type Name = (String, u32);

/// A report, as the server has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replica {
    /// The report of the replica.
    pub report: ReplicaReport,
    /// The time since the report came, by the clock of the server.
    pub silent: Duration,
}

/// The reports that the server has at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReplicaSnapshot {
    /// The replicas, in the order of hosts, processes and stores.
    pub replicas: Vec<Replica>,
    /// The processes that are counted with those that report, and report nothing themselves: older
    /// versions.
    pub unreported: BTreeSet<String>,
    /// The server's time in microseconds since the Unix epoch.
    pub now_us: u64,
    /// Names the reports that could not be read.
    pub warnings: Vec<String>,
}

impl Replica {
    /// Creates a replica whose report came this long ago.
    #[must_use]
    pub fn new(report: ReplicaReport, silent: Duration) -> Self {
        Self { report, silent }
    }

    /// Returns the name of its store.
    #[must_use]
    pub fn name(&self) -> Name {
        (self.report.process.clone(), self.report.store)
    }

    /// Returns whether the replica counts as one that does not run any more.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.silent >= ReplicaReport::LAPSE
    }
}

/// Returns how people name the replica.
#[must_use]
pub fn title(report: &ReplicaReport) -> String {
    let host = if report.host.is_empty() {
        &report.process
    } else {
        &report.host
    };
    format!("{} (pid {})", shown(host), report.pid)
}

impl ReplicaSnapshot {
    /// Reads the reports that the server has.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses, and when it has 5000 reports or more.
    pub async fn read(server: &mut Server) -> Result<Self, OperatorError> {
        let (now_us, reports) = server.reports(MOST).await?;
        if reports.len() == MOST {
            let message = format!(
                "the server has {MOST} reports of replicas or more, which is the most that are read"
            );
            return Err(OperatorError::unavailable(message));
        }
        let mut snapshot = Self::of(now_us, &reports);
        let groups: BTreeSet<_> = snapshot
            .replicas
            .iter()
            .filter(|replica| !replica.is_silent())
            .flat_map(|replica| replica.report.groups.iter().map(ToString::to_string))
            .collect();
        for group in groups {
            let counted = server.counted(&group, MOST).await?;
            snapshot.count(&counted);
        }
        Ok(snapshot)
    }

    /// Reads reports. Of several of one store, the newest counts: another one is left over from a
    /// call that was late.
    fn of(now_us: u64, reports: &[(Vec<u8>, u64)]) -> Self {
        let (mut newest, mut warnings) = (BTreeMap::<Name, Replica>::new(), Vec::new());
        for (text, at_us) in reports {
            let read = match str::from_utf8(text) {
                Ok(text) if text.len() <= MOST_BYTES => text
                    .parse::<ReplicaReport>()
                    .map_err(|error| error.to_string()),
                Ok(_) => Err("the text is too long".to_owned()),
                Err(_) => Err("the text is no UTF-8".to_owned()),
            };
            let report = match read {
                Ok(report) => report,
                Err(error) => {
                    // A newer version may have written it.
                    warnings.push(format!(
                        "a report of a replica is left out: {}",
                        shown(&error)
                    ));
                    continue;
                }
            };
            let replica = Replica {
                report,
                silent: Duration::from_micros(now_us.saturating_sub(*at_us)),
            };
            let name = replica.name();
            let is_newest = newest
                .get(&name)
                .is_none_or(|other| other.report.number < replica.report.number);
            if is_newest {
                newest.insert(name, replica);
            }
        }
        let mut replicas: Vec<_> = newest.into_values().collect();
        let order = |replica: &Replica| (replica.report.host.clone(), replica.report.pid);
        replicas.sort_by_key(order);
        Self {
            replicas,
            unreported: BTreeSet::new(),
            now_us,
            warnings,
        }
    }

    /// Notes the processes that are counted and report nothing.
    fn count(&mut self, counted: &[(Vec<u8>, u64)]) {
        for (process, at_us) in counted {
            let process = String::from_utf8_lossy(process).into_owned();
            let is_present =
                u128::from(self.now_us.abs_diff(*at_us)) < ReplicaReport::LAPSE.as_micros();
            let reports = |replica: &Replica| replica.report.process == process;
            if is_present && !self.replicas.iter().any(reports) {
                self.unreported.insert(process);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(process: &str, number: u64) -> Vec<u8> {
        let mut report = ReplicaReport::new("web-1", 7);
        process.clone_into(&mut report.process);
        report.number = number;
        report.to_string().into_bytes()
    }

    #[test]
    fn the_newest_report_of_a_store_counts_and_a_damaged_one_is_named() {
        // The older report came last: its call was late.
        let reports = [
            (text("a", 9), 5_000_000),
            (text("a", 8), 6_000_000),
            (text("b", 1), 99_000_000),
            (b"number x".to_vec(), 1),
            (vec![0xff], 1),
        ];
        let snapshot = ReplicaSnapshot::of(15_000_000, &reports);
        let shown: Vec<_> = snapshot
            .replicas
            .iter()
            .map(|replica| {
                (
                    &*replica.report.process,
                    replica.report.number,
                    replica.silent,
                    replica.is_silent(),
                )
            })
            .collect();
        let seconds = Duration::from_secs;
        assert_eq!(
            shown,
            [("a", 9, seconds(10), true), ("b", 1, seconds(0), false)]
        );
        assert_eq!(snapshot.warnings.len(), 2);
        assert!(
            snapshot.warnings[0].contains("number x"),
            "{:?}",
            snapshot.warnings
        );
    }

    #[test]
    fn a_process_that_is_counted_and_reports_nothing_is_an_older_version() {
        let mut snapshot = ReplicaSnapshot::of(20_000_000, &[(text("new", 1), 19_000_000)]);
        let old = b"old".to_vec();
        snapshot.count(&[(b"new".to_vec(), 19_000_000), (old.clone(), 13_000_000)]);
        // One that has lapsed is not counted.
        snapshot.count(&[(b"gone".to_vec(), 12_000_000)]);
        assert_eq!(snapshot.unreported, BTreeSet::from(["old".to_owned()]));
    }
}
