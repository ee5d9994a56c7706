//! Lays out a snapshot as lines of text, for a given width.

use super::snapshot::{Snapshot, Source};
use crate::output::shown;

/// A line of text. A bad one reports something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatusLine {
    pub(super) text: String,
    pub(super) is_bad: bool,
}

/// A table.
#[derive(Debug)]
pub(super) struct Section {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    is_number: bool,
    /// A column with a greater number is left out first when the width is small. 0 is never left out.
    dispensable: u8,
}

#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    is_bad: bool,
}

/// The fewest signs of a column that is cut.
const LEAST_WIDTH: usize = 6;

impl StatusLine {
    fn good(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_bad: false }
    }
}

/// Returns the lines about the sources and the outages.
pub(super) fn status(snapshot: &Snapshot) -> Vec<StatusLine> {
    let redis = snapshot.scan.as_ref().map(|scan| {
        let mut text = format!(
            "up, {}, {}, scanned in {}",
            seconds(scan.round_trip_seconds),
            scan.report.line(),
            seconds(scan.scan_seconds)
        );
        if scan.compared_part > 1 {
            text.push_str(&format!(", units/s of 1 key in {}", scan.compared_part));
        }
        text
    });
    let mut lines = vec![match &snapshot.redis {
        Some(server) => source("redis", server, redis),
        None => StatusLine::good("redis  not read: --redis adds units, keys and their use"),
    }];
    lines.extend(
        snapshot.warnings.iter().map(|warning| StatusLine { text: format!("limits  {warning}"), is_bad: true }),
    );
    lines.extend(snapshot.endpoints.iter().map(|endpoint| source("page", endpoint, Some("up".to_owned()))));
    for store in &snapshot.stores {
        let is_bad = store.connected < store.servers || store.breakers_open > 0;
        let round_trip = store.round_trip_seconds.map(|time| format!(", {}", seconds(time))).unwrap_or_default();
        let text = format!(
            "store {}  {} of {} servers connected, {} breakers open, {} queued, {} replicas{round_trip}",
            store.store, store.connected, store.servers, store.breakers_open, store.queued, store.replicas
        );
        lines.push(StatusLine { text, is_bad });
    }
    let in_outage: Vec<_> = snapshot.limiters.iter().filter(|limiter| limiter.processes_in_outage > Some(0)).collect();
    if !in_outage.is_empty() {
        let name = |limiter: &&super::snapshot::LimiterFigures| match limiter.processes_in_outage {
            Some(processes) if processes > 1 => format!("{} ({processes} processes)", limiter.limiter),
            _ => limiter.limiter.clone(),
        };
        let names: Vec<_> = in_outage.iter().map(name).collect();
        lines.push(StatusLine { text: format!("outage  {}", names.join(", ")), is_bad: true });
    } else if snapshot.limiters.iter().any(|limiter| limiter.processes_in_outage.is_some()) {
        lines.push(StatusLine::good("outage  none"));
    }
    lines
}

fn source(kind: &str, source: &Source, up: Option<String>) -> StatusLine {
    match (&source.failure, up) {
        (None, Some(up)) => StatusLine::good(format!("{kind} {}  {up}", source.address)),
        (failure, _) => {
            // The message names the address, which stands before it.
            let reason = failure.as_deref().unwrap_or("not read yet");
            let reason = reason.rsplit_once(&format!("{}: ", source.address)).map_or(reason, |(_, reason)| reason);
            let away = source.away_seconds.unwrap_or(0);
            StatusLine { text: format!("{kind} {}  away for {away} s: {reason}", source.address), is_bad: true }
        }
    }
}

/// Returns the tables that have rows.
pub(super) fn sections(snapshot: &Snapshot) -> Vec<Section> {
    // The last ones have no place on a low screen.
    let mut all = vec![policies(snapshot), limiters(snapshot), denied(snapshot), states(snapshot), rules(snapshot)];
    all.push(published(snapshot));
    all.retain(|section| !section.rows.is_empty());
    all.iter_mut().for_each(Section::drop_empty_columns);
    all
}

fn policies(snapshot: &Snapshot) -> Section {
    let mut section = Section::new(&[("policy", 0), ("algorithm", 3), (">keys", 2), (">limited", 1), (">units/s", 0)]);
    section.columns.extend([(">allowed/s", 0), (">denied/s", 0), (">shadow/s", 1)].map(Column::new));
    for of in &snapshot.policies {
        section.row(
            false,
            [
                of.policy.clone(),
                of.algorithm.unwrap_or_default().to_owned(),
                whole(of.keys),
                whole(of.limited_keys),
                rate(of.units_per_second),
                rate(of.allowed_per_second),
                rate(of.denied_per_second),
                rate(of.shadowed_per_second),
            ],
        );
    }
    section
}

fn published(snapshot: &Snapshot) -> Section {
    let names = [("published limiter", 0), ("enforced", 0), ("operator", 0), ("policies", 1)];
    let mut section = Section::new(&names);
    for of in &snapshot.published {
        section.row(false, [shown(&of.limiter), of.enforced(), of.operator(), of.policies()]);
    }
    section
}

fn limiters(snapshot: &Snapshot) -> Section {
    let mut section = Section::new(&[("limiter", 0), (">allowed/s", 0), (">denied/s", 0), (">failed/s", 2)]);
    section.columns.extend([(">degraded/s", 1), ("reason", 4), (">p99", 0), (">outages", 3)].map(Column::new));
    for of in &snapshot.limiters {
        section.row(
            of.processes_in_outage > Some(0),
            [
                of.limiter.clone(),
                rate(of.allowed_per_second),
                rate(of.denied_per_second),
                rate(of.failed_per_second),
                rate(of.degraded_per_second),
                of.degraded_reason.clone().unwrap_or_default(),
                of.p99_seconds.map(seconds).unwrap_or_default(),
                whole(of.outages),
            ],
        );
    }
    section
}

fn rules(snapshot: &Snapshot) -> Section {
    let mut section = Section::new(&[("rule", 0), (">within/s", 0), (">over/s", 0), (">shadow/s", 1)]);
    for of in &snapshot.rules {
        let rates = [of.within_per_second, of.over_per_second, of.shadow_per_second].map(rate);
        section.row(false, std::iter::once(of.rule.clone()).chain(rates));
    }
    section
}

fn states(snapshot: &Snapshot) -> Section {
    let mut section = Section::new(&[(">spent", 0), (">left", 1), (">spent %", 2), ("fresh in", 3)]);
    section.columns.extend([("key", 0), ("policy", 0), ("quota", 4)].map(Column::new));
    for state in &snapshot.states {
        section.row(
            state.is_limited(),
            [
                state.spent.to_string(),
                state.left(),
                state.share().map(|share| format!("{:.1}", 100.0 * share)).unwrap_or_default(),
                state.expires(),
                state.subject.clone(),
                state.policy.clone(),
                state.quota.clone().unwrap_or_default(),
            ],
        );
    }
    section
}

fn denied(snapshot: &Snapshot) -> Section {
    let mut section = Section::new(&[(">denials", 0), ("denied key", 0)]);
    for key in &snapshot.denied_keys {
        section.row(false, [key.denials.to_string(), key.name.clone()]);
    }
    section
}

impl Column {
    /// A name that begins with `>` is that of a column of numbers.
    fn new((name, dispensable): (&'static str, u8)) -> Self {
        Self { name: name.trim_start_matches('>'), is_number: name.starts_with('>'), dispensable }
    }
}

impl Section {
    fn new(columns: &[(&'static str, u8)]) -> Self {
        Self { columns: columns.iter().copied().map(Column::new).collect(), rows: Vec::new() }
    }

    fn row(&mut self, is_bad: bool, cells: impl IntoIterator<Item = String>) {
        self.rows.push(Row { cells: cells.into_iter().collect(), is_bad });
    }

    /// Returns the number of rows below the names of the columns.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Leaves out columns that no source fills.
    fn drop_empty_columns(&mut self) {
        for at in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row.cells[at].is_empty()) {
                self.columns.remove(at);
                self.rows.iter_mut().for_each(|row| drop(row.cells.remove(at)));
            }
        }
    }

    /// Returns the names of the columns and up to `most` rows. No line is longer than `width`.
    pub(super) fn lines(&self, width: usize, most: usize) -> Vec<StatusLine> {
        let rows = &self.rows[..most.min(self.rows.len())];
        let width_of = |at: usize| {
            let cells = rows.iter().map(|row| row.cells[at].chars().count());
            cells.max().unwrap_or(0).max(self.columns[at].name.len())
        };
        let mut shown: Vec<_> = (0..self.columns.len()).map(|at| (at, width_of(at))).collect();
        let total =
            |shown: &[(usize, usize)]| shown.iter().map(|(_, width)| width + 2).sum::<usize>().saturating_sub(2);
        while total(&shown) > width {
            let Some(last) = (0..shown.len()).max_by_key(|at| self.columns[shown[*at].0].dispensable) else { break };
            if self.columns[shown[last].0].dispensable == 0 {
                break;
            }
            shown.remove(last);
        }
        // Then the widest text is cut.
        while total(&shown) > width {
            let texts = shown.iter_mut().filter(|(at, width)| !self.columns[*at].is_number && *width > LEAST_WIDTH);
            let Some((_, widest)) = texts.max_by_key(|(_, width)| *width) else { break };
            *widest -= 1;
        }
        let line = |cell: &dyn Fn(usize) -> String| {
            let cells: Vec<_> = shown
                .iter()
                .map(|(at, width)| {
                    let text = cut(&cell(*at), *width);
                    if self.columns[*at].is_number { format!("{text:>width$}") } else { format!("{text:<width$}") }
                })
                .collect();
            cut(cells.join("  ").trim_end(), width)
        };
        let names = StatusLine::good(line(&|at| self.columns[at].name.to_owned()));
        let rows = rows.iter().map(|row| StatusLine { text: line(&|at| row.cells[at].clone()), is_bad: row.is_bad });
        std::iter::once(names).chain(rows).collect()
    }
}

/// Shortens a text, and marks the place.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect()
}

fn whole(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

fn rate(rate: Option<f64>) -> String {
    match rate {
        None => String::new(),
        Some(rate) if rate >= 100.0 => format!("{rate:.0}"),
        Some(rate) => format!("{rate:.1}"),
    }
}

/// Returns a time as text, with two or three digits that count.
fn seconds(time: f64) -> String {
    match time * 1e3 {
        ms if ms < 1.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 1e3 => format!("{ms:.0} ms"),
        _ => format!("{time:.1} s"),
    }
}
