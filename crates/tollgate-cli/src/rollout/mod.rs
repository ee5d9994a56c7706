//! Decides when all replicas enforce the same rules: a pure function of what was read so far.
//! The command that reads and waits is `commands/rollout.rs`.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, time::Duration};

use tollgate::store::{ReplicaReport, RulesDigest};
use tollgate_operator::{
    replicas::{Name, Replica, ReplicaSnapshot, title},
    text::shown,
};

/// The time for which all replicas have to enforce the rules before the roll-out is complete. A replica
/// that runs reports within it: at the latest 2.4 seconds after its last calls, which take a second
/// each at most.
pub(crate) const SETTLE: Duration = Duration::from_secs(6);

/// The longest time between two looks in which nothing is missed: a replica counts for longer.
const MOST_BETWEEN: Duration = Duration::from_secs(5);

/// Follows a roll-out from one look at the replicas to the next.
///
/// It is complete when all replicas have enforced the rules in each look of the last [`SETTLE`], and
/// each of them has reported so anew in that time. So neither an old report nor an empty server
/// completes it.
///
/// A replica that falls silent is waited for until it has been silent for the time `gone`: it may be
/// paused and come back with the rules of before. It is remembered here, because a server may lose
/// what it has.
#[derive(Debug)]
pub(crate) struct RolloutWatch {
    pub(crate) digest: RulesDigest,
    /// The source of the rules that count. Without one, all rules of a replica do.
    pub(crate) source: Option<String>,
    /// The fewest replicas that must enforce the rules.
    pub(crate) at_least: usize,
    /// The time after which a silent replica is not waited for any more.
    pub(crate) gone: Duration,
    known: BTreeMap<Name, Known>,
    /// The processes of older versions, and when each was counted last.
    unreported: BTreeMap<String, Duration>,
    /// Since when all replicas enforce the rules, and the numbers of the last reports then.
    settled: Option<(Duration, BTreeMap<Name, u64>)>,
    looked: Option<Duration>,
}

/// The last report of a replica, and when it was new here, less what it had been silent before.
#[derive(Debug)]
struct Known {
    report: ReplicaReport,
    seen: Duration,
    silent: Duration,
}

/// The result of a look at the replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) is_complete: bool,
    /// The number of replicas that enforce the rules.
    pub(crate) enforcing: usize,
    /// The replicas that do not, or are silent.
    pub(crate) missing: Vec<MissingReplica>,
}

/// A replica that a roll-out waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingReplica {
    pub(crate) replica: String,
    pub(crate) reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It enforces other rules, or none.
    Enforces {
        digest: Option<RulesDigest>,
        source: String,
        is_refused: bool,
    },
    /// It has not reported for this time.
    Silent(Duration),
    /// It is counted, and reports nothing.
    Unreported,
}

impl RolloutWatch {
    pub(crate) fn new(digest: RulesDigest) -> Self {
        Self {
            digest,
            source: None,
            at_least: 1,
            gone: Duration::from_secs(30),
            known: BTreeMap::new(),
            unreported: BTreeMap::new(),
            settled: None,
            looked: None,
        }
    }

    /// Notes that the server could not be read. Replicas may have changed meanwhile.
    pub(crate) fn interrupted(&mut self) {
        self.settled = None;
    }

    /// Takes a look that was made at `now`, by a clock that only goes forward.
    pub(crate) fn look(&mut self, snapshot: &ReplicaSnapshot, now: Duration) -> Verdict {
        if self
            .looked
            .is_some_and(|looked| now.saturating_sub(looked) > MOST_BETWEEN)
        {
            self.settled = None;
        }
        self.looked = Some(now);
        self.remember(snapshot, now);
        let mut missing: Vec<MissingReplica> = Vec::new();
        let (mut enforcing, mut numbers) = (0, BTreeMap::new());
        for (name, known) in &self.known {
            let silent = known.silent_at(now);
            let reason = if silent >= ReplicaReport::LAPSE {
                Some(Reason::Silent(silent))
            } else {
                self.other_rules(&known.report)
            };
            numbers.insert(name.clone(), known.report.number);
            match reason {
                Some(reason) => missing.push(MissingReplica {
                    replica: title(&known.report),
                    reason,
                }),
                None => enforcing += 1,
            }
        }
        missing.extend(self.unreported.keys().map(|process| MissingReplica {
            replica: format!(
                "process {}",
                shown(&process.chars().take(8).collect::<String>())
            ),
            reason: Reason::Unreported,
        }));
        let is_settled = missing.is_empty() && enforcing >= self.at_least.max(1);
        if !is_settled {
            self.settled = None;
        }
        Verdict {
            is_complete: is_settled && self.has_settled(numbers, now),
            enforcing,
            missing,
        }
    }

    /// Remembers the replicas that have rules, until they are gone.
    fn remember(&mut self, snapshot: &ReplicaSnapshot, now: Duration) {
        for replica in &snapshot.replicas {
            let name = replica.name();
            let is_counted = replica
                .report
                .rules
                .iter()
                .any(|rules| self.counts(&rules.source));
            match self.known.get_mut(&name) {
                // It reports that it has no rules any more.
                Some(_) if !is_counted => _ = self.known.remove(&name),
                Some(known) if replica.report.number > known.report.number => {
                    *known = Known::new(replica, now);
                }
                None if is_counted => _ = self.known.insert(name, Known::new(replica, now)),
                _ => {}
            }
        }
        let gone = self.gone;
        self.known.retain(|_, known| known.silent_at(now) < gone);
        for process in &snapshot.unreported {
            self.unreported.insert(process.clone(), now);
        }
        let reports = |process: &String| {
            let replicas = &mut snapshot.replicas.iter();
            replicas.any(|replica| replica.report.process == *process)
        };
        self.unreported
            .retain(|process, seen| now.saturating_sub(*seen) < gone && !reports(process));
    }

    fn counts(&self, source: &str) -> bool {
        self.source.as_deref().is_none_or(|wanted| wanted == source)
    }

    /// Returns why a report is not that of a replica that enforces the rules. Of several rules that
    /// count, all have to be these.
    fn other_rules(&self, report: &ReplicaReport) -> Option<Reason> {
        let mut counted = report
            .rules
            .iter()
            .filter(|rules| self.counts(&rules.source));
        let other = counted.find(|rules| rules.digest != Some(self.digest))?;
        Some(Reason::Enforces {
            digest: other.digest,
            source: other.source.clone(),
            is_refused: other.refused.is_some(),
        })
    }

    /// Returns whether each replica has reported anew since all enforce the rules, and that is long
    /// enough ago.
    fn has_settled(&mut self, numbers: BTreeMap<Name, u64>, now: Duration) -> bool {
        let Some((since, before)) = &self.settled else {
            self.settled = Some((now, numbers));
            return false;
        };
        let is_new =
            |(name, number): (&Name, &u64)| before.get(name).is_none_or(|old| number > old);
        now.saturating_sub(*since) >= SETTLE && numbers.iter().all(is_new)
    }
}

impl Known {
    fn new(replica: &Replica, now: Duration) -> Self {
        Self {
            report: replica.report.clone(),
            seen: now,
            silent: replica.silent,
        }
    }

    /// Returns how long the replica has been silent. Only the first look asks the clock of the server,
    /// which may be set at any time.
    fn silent_at(&self, now: Duration) -> Duration {
        self.silent + now.saturating_sub(self.seen)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforces {
                digest,
                source,
                is_refused,
            } => {
                match digest {
                    Some(digest) => write!(f, "enforces {digest} of {}", shown(source))?,
                    None => write!(f, "enforces no rules of {}", shown(source))?,
                }
                f.write_str(if *is_refused {
                    ", and refuses newer ones"
                } else {
                    ""
                })
            }
            Self::Silent(silent) => write!(f, "silent for {} s", silent.as_secs()),
            Self::Unreported => f.write_str("counted, and reports no rules: an older version"),
        }
    }
}
