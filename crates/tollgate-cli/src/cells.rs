//! States, limiters and scans as tables show them.
//! Rows and columns are laid out in `output.rs`. What stands in a cell was read by tollgate-operator.

use std::time::Duration;

use serde::Serialize;
use tollgate_operator::{
    states::{PublishedLimiter, ScanReport, StateEntry},
    text::{shown, span},
};

/// The counts of a scan beside the states that it has found, which are listed as `states`.
#[derive(Debug, Serialize)]
pub(crate) struct ScanCounts {
    scanned: u64,
    other_keys: u64,
    without_limit: u64,
}

impl From<&ScanReport> for ScanCounts {
    fn from(report: &ScanReport) -> Self {
        Self {
            scanned: report.states,
            other_keys: report.other_keys,
            without_limit: report.without_limit,
        }
    }
}

/// Returns the counts of a scan as a line.
pub(crate) fn scan_line(report: &ScanReport) -> String {
    let mut line = format!("{} states", report.states);
    if let Some(prefix) = &report.unused_prefix {
        line.push_str(&format!(
            ": no key has the prefix {prefix}, which --prefix sets"
        ));
    }
    if report.without_limit > 0 && report.without_limit < report.states {
        line.push_str(&format!(", {} without a known limit", report.without_limit));
    }
    if report.other_keys > 0 {
        line.push_str(&format!(
            ", {} keys of other programs left out",
            report.other_keys
        ));
    }
    line
}

/// Returns a state as cells: spent, left, share in percent, time to expiry, key, policy, algorithm and
/// quota.
pub(crate) fn state_cells(state: &StateEntry) -> [String; 8] {
    [
        state.spent.to_string(),
        left(state),
        state
            .share()
            .map(|share| format!("{:.1}", 100.0 * share))
            .unwrap_or_default(),
        span(Duration::from_millis(state.expires_ms)),
        state.subject.clone(),
        state.policy.clone(),
        state.algorithm.to_owned(),
        state.quota.clone().unwrap_or_default(),
    ]
}

/// Returns the units that are left of the limit, or the debt. Empty when the limit is not known.
fn left(state: &StateEntry) -> String {
    match (state.limit, state.debt) {
        (Some(_), Some(debt)) if debt > 0 => format!("debt {debt}"),
        (Some(limit), _) => limit.saturating_sub(state.spent).to_string(),
        (None, _) => String::new(),
    }
}

/// Returns when the cost fits that was asked for.
pub(crate) fn fits_in(state: &StateEntry) -> String {
    match (state.fits_after_us, state.limit) {
        (Some(0), _) => "now".to_owned(),
        // Rounded up: a request that comes at that time is admitted.
        (Some(wait_us), _) if wait_us < 60_000_000 => {
            format!("in {:.3} s", wait_us.div_ceil(1_000) as f64 / 1e3)
        }
        (Some(wait_us), _) => format!(
            "in {}",
            span(Duration::from_secs(wait_us.div_ceil(1_000_000)))
        ),
        (None, Some(_)) => "never".to_owned(),
        (None, None) => "at an unknown time".to_owned(),
    }
}

/// Returns a limiter as cells: its name, the shares in force, that of operators, and the policies.
pub(crate) fn limiter_cells(limiter: &PublishedLimiter) -> [String; 4] {
    let operator = limiter.operator.as_deref();
    let operator = operator.map(|share| shown(&share.chars().take(20).collect::<String>()));
    let policies = match &limiter.policies[..] {
        [] => "not published".to_owned(),
        sets => sets
            .iter()
            .map(|set| set.join("; "))
            .collect::<Vec<_>>()
            .join(" | "),
    };
    [
        shown(&limiter.limiter),
        enforced(limiter),
        operator.unwrap_or_default(),
        policies,
    ]
}

/// Returns the shares in force of a limiter.
pub(crate) fn enforced(limiter: &PublishedLimiter) -> String {
    limiter
        .enforced
        .iter()
        .map(|percent| format!("{percent}%"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Creates the state of a fixed window of the year 1970.
#[cfg(test)]
pub(crate) fn of_window(subject: &str, policy: &str, count: u64, limit: Option<u64>) -> StateEntry {
    use tollgate::{Quota, store::StoredState};
    use tollgate_operator::states::{Reading, StateKey};

    let key = format!("tollgate:{{{subject}}}:{policy}:f1");
    let key = StateKey::parse("tollgate", key.as_bytes()).expect("a key of a fixed window");
    let quota = limit.map(|limit| Quota::new(limit, Duration::from_secs(60)));
    let stored = StoredState::Window {
        start_us: 0,
        count,
        period_us: 60_000_000,
    };
    let reading = Reading::new(stored, count, 0);
    StateEntry::new(&key, "tollgate", quota.as_ref(), 60_000, reading)
}
