//! The report of a replica to operators: its rules, and the limits of its limiters.
//! When and where it is kept is decided in `tollgate-remote/src/presence/`, and what the replicas
//! report is compared by the command.

use std::{fmt, str::FromStr, time::Duration};

use super::{Publication, ReplicaGroup, ReportedRules, RulesInForce};
use crate::Error;

/// The rules and limits that one store of a replica enforces, as operators see them. It contains no keys.
///
/// Stores that make replicas known keep one for each, renew it every two seconds, and drop it
/// [`KEPT`](Self::KEPT) after the last time. Its age is that by the clock of the server, and times within
/// it are durations, so a replica with a wrong clock reports the truth.
///
/// `Display` writes the text that stands in the store, a line for each field. `FromStr` skips lines
/// that it does not know: a newer version may have written them.
///
/// ```
/// use tollgate::store::{ReplicaReport, RulesDigest, RulesInForce};
///
/// let rules = RulesInForce::new("/etc/limits");
/// rules.enforce(RulesDigest::new([1; 8]));
/// let mut report = ReplicaReport::new("web-1", 4711);
/// report.rules.push(rules.reported());
/// let read: ReplicaReport = report.to_string().parse()?;
/// assert_eq!((&*read.host, read.pid, read.rules[0].digest), ("web-1", 4711, rules.digest()));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaReport {
    /// The random name of the process. It is the name by which the process is counted.
    pub process: String,
    /// The number of the store within the process. Each store reports what its limiters enforce.
    pub store: u32,
    /// The number of this report. Of two reports of one store, the greater one is newer.
    pub number: u64,
    /// The version of Tollgate.
    pub version: String,
    /// The name of the machine or the container.
    pub host: String,
    /// The number of the process on its machine.
    pub pid: u32,
    /// The groups in which the process is counted.
    pub groups: Vec<ReplicaGroup>,
    /// The rules of files, one for each handle.
    pub rules: Vec<ReportedRules>,
    /// The limiters that are published, as [`Publication`] writes them.
    pub limits: Vec<String>,
    /// The number of limiters that found no room in the report.
    pub left_out: usize,
}

/// The most rules of a report, and the most bytes of its text.
const MAX_RULES: usize = 16;
const MAX_BYTES: usize = 16_384;

impl ReplicaReport {
    /// The time after which a silent replica is not counted any more. A replica that runs reports
    /// every two seconds.
    pub const LAPSE: Duration = Duration::from_secs(8);

    /// The time for which a store keeps the report of a silent replica.
    pub const KEPT: Duration = Duration::from_secs(600);

    /// Creates an empty report of a process on a machine.
    #[must_use]
    pub fn new(host: impl Into<String>, pid: u32) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host.into(),
            pid,
            ..Self::default()
        }
    }

    /// Adds what these rules and limiters enforce now. What finds no room is counted in
    /// [`left_out`](Self::left_out).
    pub fn add(&mut self, rules: &[RulesInForce], limits: &[Publication]) {
        self.rules
            .extend(rules.iter().take(MAX_RULES).map(RulesInForce::reported));
        self.left_out += rules.len().saturating_sub(MAX_RULES);
        let mut bytes = self.to_string().len();
        for limits in limits {
            let text = limits.to_string();
            bytes += text.len() + LIMITS.len() + 1;
            if bytes > MAX_BYTES {
                self.left_out += 1;
            } else {
                self.limits.push(text);
            }
        }
    }
}

const REPLICA: &str = "replica ";
const NUMBER: &str = "number ";
const VERSION: &str = "version ";
const HOST: &str = "host ";
const PID: &str = "pid ";
const GROUPS: &str = "groups";
const RULES: &str = "rules ";
const LIMITS: &str = "limits ";
const LEFT_OUT: &str = "left_out ";

impl fmt::Display for ReplicaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{REPLICA}{} {}", Line(&self.process), self.store)?;
        writeln!(f, "{NUMBER}{}", self.number)?;
        writeln!(f, "{VERSION}{}", Line(&self.version))?;
        writeln!(f, "{HOST}{}", Line(&self.host))?;
        writeln!(f, "{PID}{}", self.pid)?;
        f.write_str(GROUPS)?;
        self.groups
            .iter()
            .try_for_each(|group| write!(f, " {group}"))?;
        f.write_str("\n")?;
        for rules in &self.rules {
            writeln!(f, "{RULES}{}", Line(&rules.to_string()))?;
        }
        for limits in &self.limits {
            writeln!(f, "{LIMITS}{}", Line(limits))?;
        }
        writeln!(f, "{LEFT_OUT}{}", self.left_out)
    }
}

/// Writes a text in one line.
struct Line<'t>(&'t str);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.split(['\n', '\r']).enumerate() {
            write!(f, "{}{part}", if at == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl FromStr for ReplicaReport {
    type Err = Error;

    /// Parses what `Display` writes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) when a line has another form, or the process
    /// has no name.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut report = Self::default();
        for line in text.lines() {
            report.read(line).ok_or_else(|| {
                let line: String = line.chars().take(80).collect();
                Error::config(format!(
                    "a report of a replica has a line that is not valid: {line:?}"
                ))
            })?;
        }
        if text.starts_with(REPLICA) {
            Ok(report)
        } else {
            Err(Error::config(
                "a report of a replica must begin with its name",
            ))
        }
    }
}

impl ReplicaReport {
    fn read(&mut self, line: &str) -> Option<()> {
        if let Some(rest) = line.strip_prefix(REPLICA) {
            let (process, store) = rest.rsplit_once(' ')?;
            (self.process, self.store) = (process.to_owned(), store.parse().ok()?);
        } else if let Some(number) = line.strip_prefix(NUMBER) {
            self.number = number.parse().ok()?;
        } else if let Some(version) = line.strip_prefix(VERSION) {
            version.clone_into(&mut self.version);
        } else if let Some(host) = line.strip_prefix(HOST) {
            host.clone_into(&mut self.host);
        } else if let Some(pid) = line.strip_prefix(PID) {
            self.pid = pid.parse().ok()?;
        } else if let Some(groups) = line.strip_prefix(GROUPS) {
            let groups = groups.split(' ').filter(|group| !group.is_empty());
            self.groups = groups.map(ReplicaGroup::parse).collect::<Option<_>>()?;
        } else if let Some(rules) = line.strip_prefix(RULES) {
            self.rules.push(rules.parse().ok()?);
        } else if let Some(limits) = line.strip_prefix(LIMITS) {
            self.limits.push(limits.to_owned());
        } else if let Some(left_out) = line.strip_prefix(LEFT_OUT) {
            self.left_out = left_out.parse().ok()?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Quota, store::RulesDigest};

    fn whole() -> ReplicaReport {
        let rules = [RulesInForce::new("/etc/a b\nc"), RulesInForce::new("")];
        rules[0].enforce(RulesDigest::new([7; 8]));
        rules[0].refuse();
        let policy = Policy::fixed_window("day", Quota::per_day(5));
        let mut report = ReplicaReport::new("web-1", 4711);
        (report.process, report.store, report.number) = ("00ff".to_owned(), 2, 17);
        let policies = policy.clone().into();
        report.groups = vec![
            ReplicaGroup::new("search", &policies),
            ReplicaGroup::FURTHER,
        ];
        report.add(&rules, &[Publication::new("search", policy, None)]);
        report
    }

    #[test]
    fn a_report_is_read_as_it_was_written_and_unknown_lines_are_skipped() {
        let mut report = whole();
        let text = report.to_string() + "newer 1 2 3\n";
        // A source is one line.
        "/etc/a b c".clone_into(&mut report.rules[0].source);
        assert_eq!(text.parse::<ReplicaReport>().expect("a report"), report);
        assert!(
            text.contains("\nlimits day=5/day, fixed_window; limiter search\n"),
            "{text}"
        );
    }

    #[test]
    fn a_damaged_report_is_refused_by_its_line() {
        let text = whole().to_string();
        for (part, damaged) in [
            ("replica 00ff 2", "replica 00ff"),
            ("replica 00ff 2", "process 00ff 2"),
            ("number 17", "number -1"),
            ("pid 4711", "pid x"),
            ("groups ", "groups x"),
            ("rules 0707070707070707 ", "rules 07 "),
            ("left_out 0", "left_out many"),
        ] {
            assert!(text.contains(part), "{part}: {text}");
            let error = text.replace(part, damaged).parse::<ReplicaReport>();
            assert!(error.is_err(), "{damaged}");
        }
    }

    #[test]
    fn a_report_is_bounded_and_says_what_is_missing() {
        let policy = Policy::fixed_window("day", Quota::per_day(5));
        let limits = |at| Publication::new(format!("{at}").repeat(200), policy.clone(), None);
        let limits: Vec<_> = (0..64).map(limits).collect();
        let rules = vec![RulesInForce::new("a"); 20];
        let mut report = ReplicaReport::new("web-1", 1);
        report.add(&rules, &limits);
        assert!(report.to_string().len() <= MAX_BYTES);
        assert_eq!(report.rules.len(), 16);
        assert_eq!(report.limits.len() + report.left_out, 64 + 4);
    }
}
