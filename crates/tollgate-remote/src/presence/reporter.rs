//! A process reports to operators what it enforces: its rules and its limits.
//! The text is made in `store/replica_report.rs` of the core, and the call is made by each store.
//! Limits that all processes have together are shown by `publisher.rs`.

use std::{
    env, fs, process,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use super::{
    counter::{Complaints, PROCESS, is_away},
    held::held,
};
use tollgate_core::{
    Error, ErrorKind,
    raw::{Lock, WeakRulesInForce},
    store::{Publication, ReplicaGroup, ReplicaReport, RulesInForce},
};

/// The time for which a report is kept after the last call. An operator sees for so long which replica
/// has fallen silent.
pub const REPORT_US: u64 = ReplicaReport::KEPT.as_micros() as u64;

/// The most reports whose calls failed that one call replaces. Others lapse.
const MAX_UNCERTAIN: usize = 8;

/// A report on its way to the store.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReportCall {
    /// The name under which a store that keeps one value for each report keeps it.
    pub name: String,
    /// The text of the report. `None` withdraws the last one.
    pub text: Option<String>,
    /// The reports of this store that may be there still. A store that knows reports by their texts
    /// removes them.
    pub replaced: Vec<String>,
}

/// Keeps what a store reports, as long as somebody holds it.
pub(crate) struct Reporter {
    /// The number of this store within the process.
    store: u32,
    added: Lock<Vec<WeakRulesInForce>>,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    number: u64,
    /// The reports that may be in the store.
    sent: Vec<String>,
    complaints: Complaints,
}

impl Default for Reporter {
    fn default() -> Self {
        static STORES: AtomicU32 = AtomicU32::new(0);
        Self {
            store: STORES.fetch_add(1, Ordering::Relaxed),
            added: Lock::default(),
            state: Lock::default(),
        }
    }
}

impl Reporter {
    /// Reports these rules from now on.
    pub(crate) fn add(&self, rules: &RulesInForce) {
        let mut added = self.added.lock();
        let is_known = held(&mut added, WeakRulesInForce::upgrade)
            .iter()
            .any(|known| known.is_same(rules));
        if !is_known {
            added.push(rules.downgrade());
        }
    }

    /// Returns the rules that are reported.
    pub(crate) fn rules(&self) -> Vec<RulesInForce> {
        held(&mut self.added.lock(), WeakRulesInForce::upgrade)
    }

    /// Returns the next report, which says what is in force at this moment. `None` when there is
    /// nothing to report, and the last report was withdrawn.
    pub(crate) fn next(
        &self,
        groups: &[ReplicaGroup],
        limits: &[Publication],
    ) -> Option<ReportCall> {
        let rules = self.rules();
        let mut state = self.state.lock();
        let is_empty = groups.is_empty() && limits.is_empty() && rules.is_empty();
        if is_empty && state.sent.is_empty() {
            return None;
        }
        let text = (!is_empty).then(|| {
            state.number += 1;
            let mut report = ReplicaReport::new(&**HOST, process::id());
            PROCESS.clone_into(&mut report.process);
            (report.store, report.number) = (self.store, state.number);
            report.groups = groups.to_vec();
            report.add(&rules, limits);
            report.to_string()
        });
        let replaced = state.sent.clone();
        if let Some(text) = &text {
            // Also a call that fails may have reached the store.
            if state.sent.len() == MAX_UNCERTAIN {
                state.sent.remove(0);
            }
            state.sent.push(text.clone());
        }
        Some(ReportCall {
            name: format!("enforced:{}:{}", &**PROCESS, self.store),
            text,
            replaced,
        })
    }

    /// Notes how the call of a report ended. Returns whether it succeeded.
    pub(crate) fn ended(&self, call: ReportCall, result: Result<(), Error>) -> bool {
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                state.sent = call.text.into_iter().collect();
                state.complaints.forget();
                true
            }
            Err(error) => {
                if state.complaints.is_new(&error) {
                    report(&error);
                }
                false
            }
        }
    }
}

/// Logs a failed call. A server that is away is an outage, which each limiter logs.
fn report(error: &Error) {
    match error.kind() {
        ErrorKind::PermissionDenied => tracing::warn!(
            code = "TOLLGATE-ACL",
            "operators do not see what this replica enforces; grant +zadd +zremrangebyscore +pexpire on the keys of the \
             prefix"
        ),
        kind if is_away(kind) => {
            tracing::debug!(%error, "this replica could not report what it enforces");
        }
        _ => tracing::warn!(%error, "operators do not see what this replica enforces"),
    }
}

/// The name of the machine or the container: that of Kubernetes is the name of the pod.
static HOST: LazyLock<String> = LazyLock::new(|| {
    let named = env::var("HOSTNAME").ok();
    let asked = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = named.or_else(asked).unwrap_or_default();
    host.trim().chars().take(MAX_HOST).collect()
});

/// The longest name of a machine in the DNS.
const MAX_HOST: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{Policy, Quota, store::RulesDigest};

    fn read(call: &ReportCall) -> ReplicaReport {
        let text = call.text.as_ref().expect("a text");
        text.parse().expect("a report")
    }

    #[test]
    fn a_report_says_what_is_in_force_when_it_is_sent_and_the_last_one_is_withdrawn() {
        let reporter = Reporter::default();
        assert!(reporter.next(&[], &[]).is_none());
        let rules = RulesInForce::new("rules.yaml");
        reporter.add(&rules);
        reporter.add(&rules.clone());
        let first = reporter.next(&[], &[]).expect("a report");
        assert_eq!(read(&first).rules.len(), 1);
        assert_eq!(read(&first).rules[0].digest, None);
        assert!(reporter.ended(first, Ok(())));
        rules.enforce(RulesDigest::new([1; 8]));
        let second = reporter.next(&[], &[]).expect("a report");
        assert_eq!(read(&second).rules[0].digest, rules.digest());
        assert!(read(&second).number > 1);
        assert!(reporter.ended(second, Ok(())));

        drop(rules);
        let limits = Publication::new("a", Policy::fixed_window("a", Quota::per_day(1)), None);
        let third = reporter.next(&[], &[limits]).expect("a report");
        assert_eq!(
            (read(&third).rules.len(), read(&third).limits.len()),
            (0, 1)
        );
        assert!(reporter.ended(third, Ok(())));
        let last = reporter.next(&[], &[]).expect("a withdrawal");
        assert_eq!((&last.text, last.replaced.len()), (&None, 1));
        assert!(reporter.ended(last, Ok(())));
        assert!(reporter.next(&[], &[]).is_none());
    }

    #[test]
    fn a_report_replaces_those_whose_calls_failed() {
        let reporter = Reporter::default();
        let rules = RulesInForce::new("rules.yaml");
        reporter.add(&rules);
        let mut sent = Vec::new();
        for at in 0..12 {
            let call = reporter.next(&[], &[]).expect("a report");
            assert_eq!(call.replaced.len(), at.min(MAX_UNCERTAIN));
            assert!(sent.ends_with(&call.replaced));
            sent.extend(call.text.clone());
            let away = Error::new(ErrorKind::Unavailable, "away");
            assert!(!reporter.ended(call, Err(away)));
        }
        let call = reporter.next(&[], &[]).expect("a report");
        let text = call.text.clone();
        assert!(reporter.ended(call, Ok(())));
        let next = reporter.next(&[], &[]).expect("a report");
        assert_eq!(Some(next.replaced), text.map(|text| vec![text]));
    }
}
