//! The report of a simulation.
//! The counts are made in `tally.rs`, the proposals in `suggest.rs`.

use std::fmt::Write as _;

use serde::Serialize;

use tollgate_operator::text::{shown, shown_time};

use super::{
    simulator::Simulator,
    suggest::{Suggestion, suggest},
    tally::{RuleName, Tally},
};
use crate::{failure::Failure, output::Table, trace::Skipped};

/// The result of a simulation.
#[derive(Debug, Serialize)]
pub(crate) struct SimulationReport {
    requests: u64,
    denied: u64,
    from: Option<String>,
    to: Option<String>,
    without_descriptor: u64,
    skipped_lines: u64,
    late_lines: u64,
    rules: Vec<RuleReport>,
    notes: Vec<String>,
}

/// The result for one rule.
#[derive(Debug, Serialize)]
struct RuleReport {
    #[serde(flatten)]
    name: RuleName,
    requests: u64,
    denied: u64,
    denied_percent: f64,
    denied_keys: usize,
    /// More keys were denied than are counted each.
    has_more_denied_keys: bool,
    replaced: u64,
    suggestions: Vec<Suggestion>,
}

impl SimulationReport {
    /// Creates the report. With `percent`, it proposes quotas that would have denied at most that
    /// share.
    pub(crate) async fn new(
        simulator: &Simulator,
        skipped: &Skipped,
        late: u64,
        percent: Option<f64>,
    ) -> Result<Self, Failure> {
        let totals = &simulator.totals;
        let mut rules = Vec::new();
        for tally in &simulator.tallies {
            let suggestions = match percent {
                Some(percent) => suggest(tally, percent).await.map_err(Failure::new)?,
                None => Vec::new(),
            };
            rules.push(RuleReport::new(tally, suggestions));
        }
        let mut notes = Vec::new();
        if skipped.count > 0 {
            notes.push(format!(
                "{} lines of the trace are no requests and were left out",
                skipped.count
            ));
            notes.extend(
                skipped
                    .examples
                    .iter()
                    .map(|(line, reason)| format!("line {line}: {reason}")),
            );
        }
        if late > 0 {
            notes.push(format!(
                "{late} requests are far out of order, and count at the time of the request before them"
            ));
        }
        if let Some(reason) = &totals.first_unusable {
            notes.push(format!(
                "{} requests have no descriptors: {reason}",
                totals.unusable
            ));
        }
        notes.extend(simulator.missing.notes());
        if totals.is_approximate {
            notes.push(
                "more keys are active than the simulation holds, so it denies too little"
                    .to_owned(),
            );
        }
        let time = |micros| (totals.requests > 0).then(|| shown_time(micros));
        Ok(Self {
            requests: totals.requests,
            denied: totals.denied,
            from: time(totals.first_us),
            to: time(totals.last_us),
            without_descriptor: totals.without_descriptor,
            skipped_lines: skipped.count,
            late_lines: late,
            rules,
            notes,
        })
    }

    /// Returns the report as a table.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to memory cannot fail.
        let (from, to) = (
            self.from.as_deref().unwrap_or("-"),
            self.to.as_deref().unwrap_or("-"),
        );
        let share = percent(self.denied, self.requests);
        let _ = writeln!(
            text,
            "{} requests from {from} to {to}, {} denied ({share:.2} %)",
            self.requests, self.denied
        );
        if self.without_descriptor > 0 {
            let _ = writeln!(
                text,
                "{} requests match no descriptor",
                self.without_descriptor
            );
        }
        text.push('\n');
        let mut table = Table::new([
            "rule",
            "limit",
            ">requests",
            ">denied",
            ">denied %",
            ">keys denied",
            "place",
        ]);
        for rule in &self.rules {
            let mode = if rule.name.is_shadow { " (shadow)" } else { "" };
            let more = if rule.has_more_denied_keys { "+" } else { "" };
            table.row([
                shown(&rule.name.metric),
                format!("{}{mode}", rule.name.limit),
                rule.requests.to_string(),
                rule.denied.to_string(),
                format!("{:.2}", rule.denied_percent),
                format!("{}{more}", rule.denied_keys),
                shown(&rule.name.place),
            ]);
        }
        text.push_str(&table.text());
        if self.rules.iter().any(|rule| !rule.suggestions.is_empty()) {
            text.push('\n');
            text.push_str(&self.suggestions());
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    fn suggestions(&self) -> String {
        let mut table = Table::new(["rule", "quota", ">denied %", "suggested quota", ">denied %"]);
        for rule in &self.rules {
            for suggestion in &rule.suggestions {
                let share = |denied| format!("{:.2}", percent(denied, rule.requests));
                table.row([
                    shown(&rule.name.metric),
                    suggestion.quota.clone(),
                    share(suggestion.denied),
                    suggestion
                        .suggested
                        .clone()
                        .unwrap_or_else(|| "none is large enough".to_owned()),
                    suggestion.suggested_denied.map(share).unwrap_or_default(),
                ]);
            }
        }
        table.text()
    }
}

impl RuleReport {
    fn new(tally: &Tally, suggestions: Vec<Suggestion>) -> Self {
        let (denied_keys, has_more_denied_keys) = tally.denied_keys();
        Self {
            name: tally.rule.clone(),
            requests: tally.requests,
            denied: tally.denied,
            denied_percent: percent(tally.denied, tally.requests),
            denied_keys,
            has_more_denied_keys,
            replaced: tally.replaced,
            suggestions,
        }
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}
