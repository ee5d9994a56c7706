//! The report: a line for each figure as it is measured, and a page of Markdown at the end.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    findings::{Figure, Findings, Target},
    other_runs,
    pace::Pace,
    rows,
};

/// The report of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pace: Pace,
    /// The name of the server, or `soak`; nothing for the rows on the system's server.
    about: Option<String>,
    /// The start of the run, and the time of the longest run.
    began: Instant,
    longest: Duration,
    /// The number of runs, and of rows that broke in all of them.
    runs: u32,
    breaks: usize,
    /// Of the last run.
    rows: Vec<(&'static str, &'static str, Option<Findings>)>,
    left_out: Vec<(&'static str, &'static str, String)>,
}

impl Report {
    pub(crate) fn new(pace: Pace, about: Option<String>) -> Self {
        Self {
            pace,
            about,
            began: Instant::now(),
            longest: Duration::ZERO,
            runs: 0,
            breaks: 0,
            rows: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Begins a run. The figures of the run before are dropped, its broken rows stay counted.
    pub(crate) fn begin(&mut self) {
        self.began = Instant::now();
        self.rows.clear();
    }

    /// Ends a run.
    pub(crate) fn end(&mut self) {
        self.longest = self.longest.max(self.began.elapsed());
        self.runs += 1;
        self.breaks += self.rows.len() - self.found().count();
    }

    /// Adds the figures of a row, or nothing where it broke, and prints them.
    pub(crate) fn add(&mut self, id: &'static str, fault: &'static str, found: Option<Findings>) {
        match &found {
            None => println!("{id:<3} {fault}: BROKEN, see above"),
            Some(found) => {
                for it in &found.figures {
                    println!("{id:<3} {fault}: {}: {} ({}) {}", it.asked, it.measured(), it.target(), it.verdict());
                }
            }
        }
        self.rows.push((id, fault, found));
    }

    /// Adds a row that cannot be raised on this machine, and the reason.
    pub(crate) fn leave_out(&mut self, id: &'static str, fault: &'static str, why: &str) {
        self.left_out.push((id, fault, why.to_owned()));
    }

    /// Returns whether a row could not be carried out in one of the runs.
    pub(crate) fn broken(&self) -> bool {
        self.breaks > 0
    }

    /// Counts the rows, and the figures that met their targets.
    pub(crate) fn tally(&self) -> String {
        let broken = self.rows.len() - self.found().count();
        let figures = counted(self.found().flat_map(|found| &found.figures));
        let scores = self.scores();
        let scores = counted(scores.iter().map(|(_, figure)| figure));
        format!("{} rows, {broken} broken; figures: {figures}; scoreboard: {scores}", self.rows.len())
    }

    /// Prints the scoreboard, a line for each figure.
    pub(crate) fn print_scores(&self) {
        for (at, it) in self.scores() {
            println!("#{at:<3}{}: {} ({}) {}", it.asked, it.measured(), it.target(), it.verdict());
        }
    }

    fn found(&self) -> impl Iterator<Item = &Findings> {
        self.rows.iter().filter_map(|(_, _, found)| found.as_ref())
    }

    /// Returns the page. The page of the system's server keeps the summaries of other runs, which stand in `previous`.
    pub(crate) fn markdown(&self, previous: &str) -> String {
        let pace = if self.pace.is_quick { " This was a quick run: few repetitions." } else { "" };
        let (title, command) = match self.about.as_deref() {
            None => (String::new(), "cargo xtask faults".to_owned()),
            Some("soak") => (": a soak".to_owned(), "cargo xtask faults --soak".to_owned()),
            Some(server) => (format!(": {server}"), format!("cargo xtask faults --server {server}")),
        };
        let mut page = format!(
            "# Reliability{title}\n\n\
             Written by `{command}`. {}. Everything runs over loopback and shares the cores; the code is built as for \
             tests. The deadline of a check is 50 ms, the default.{pace} {}.\n\n\
             `cargo xtask faults --quick` raises the same faults within three minutes. The tests raise these faults on every run too: they check \
             decisions and counts, not times.\n\n\
             The targets follow from the settings: the deadline and 20 ms for a check, 200 ms for an outage beyond that of the \
             server, 1200 ms where the probes have slowed down to one a second, 1500 ms where a silent connection has to be \
             given up first, a second after their life for permits that have to be free again, half of that life for permits \
             that the server has lost, a second after its time limits for the service for Envoy.\n",
            tollgate_tests::machine::describe().join(", "),
            self.tally(),
        );
        page += "\n## Scoreboard\n\n| # | measure | measured | target | |\n|---|---|---|---|---|\n";
        for (at, it) in self.scores() {
            page += &format!("| {at} | {}\n", it.cells());
        }
        page += "\n## Faults\n";
        page += &folded("The figures of each fault", "| row | fault | figure | measured | target | |", self.lines());
        if self.about.is_none() {
            page += &other_runs::kept(previous);
        }
        let lines = rows::ELSEWHERE.iter().map(|(at, what, place)| format!("| {at} | {what} | {place} |\n"));
        page += "\n## Measured elsewhere\n";
        page += &folded("What other commands measure", "| # | measure | where |", lines);
        page += "\n## Longer attacks\n\n\
            Independent models of the promises, real clients and real processes attacked what stands for longer than a row \
            lasts. What did not hold was mended, and has a row or a test since.\n";
        let lines = rows::HELD.iter();
        let lines =
            lines.map(|(attack, extent, result, rows)| format!("| {attack} | {extent} | {result} | {rows} |\n"));
        page += &folded("What held", "| attack | extent | result | rows |", lines);
        let left_out = self.left_out.iter().map(|(id, fault, why)| (*id, *fault, why.as_str()));
        let lines = left_out.chain(rows::NOT_RAISED.iter().copied());
        let lines = lines.map(|(id, fault, why)| format!("| {id} | {fault} | {why} |\n"));
        page += "\n## Not raised\n";
        page += &folded("What is not raised, and why", "| row | fault | why |", lines);
        page
    }

    /// Returns the lines of all figures.
    fn lines(&self) -> impl Iterator<Item = String> {
        self.rows.iter().flat_map(|(id, fault, found)| match found {
            None => vec![format!("| {id} | {fault} | – | – | – | **broken** |\n")],
            Some(found) => found.figures.iter().map(|it| format!("| {id} | {fault} | {}\n", it.cells())).collect(),
        })
    }

    fn scores(&self) -> Vec<(u8, Figure)> {
        let mut scores: BTreeMap<u8, Vec<Figure>> = BTreeMap::new();
        for (at, figure) in self.found().flat_map(|found| &found.scores) {
            scores.entry(*at).or_default().push(figure.clone());
        }
        let (keys, expiring) = self.found().fold((0, 0), |(a, b), it| (a + it.keys, b + it.expiring));
        let without = Figure {
            asked: format!("keys without expiry, of {keys} that the rows left"),
            target: Target::AtMost(0.0),
            measured: (keys - expiring) as f64,
            unit: "",
        };
        scores.entry(12).or_default().push(without);
        if self.runs > 1 {
            let (asked, target) = (format!("rows that broke in {} runs", self.runs), Target::AtMost(0.0));
            scores.entry(23).or_default().push(Figure { asked, target, measured: self.breaks as f64, unit: "" });
            let (asked, measured) = ("the same: the longest run".to_owned(), self.longest.as_secs_f64() / 60.0);
            scores.entry(23).or_default().push(Figure { asked, target: Target::AtMost(30.0), measured, unit: " min" });
        }
        scores.into_iter().flat_map(|(at, figures)| figures.into_iter().map(move |it| (at, it))).collect()
    }
}

/// Formats a table that the reader unfolds.
fn folded(summary: &str, heads: &str, lines: impl Iterator<Item = String>) -> String {
    let rule = "|---".repeat(heads.matches('|').count() - 1);
    let lines: String = lines.collect();
    format!("\n<details><summary>{summary}</summary>\n\n{heads}\n{rule}|\n{lines}\n</details>\n")
}

fn counted<'a>(figures: impl Iterator<Item = &'a Figure>) -> String {
    let met: Vec<bool> = figures.filter_map(Figure::is_met).collect();
    let missed = met.iter().filter(|is_met| !**is_met).count();
    format!("{} met, {missed} missed", met.len() - missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_and_a_broken_row_say_so() {
        let mut found = Findings::default();
        found.figure("time", Target::AtMost(2.0), 2.5, " ms");
        found.figure("count", Target::AtLeast(2.0), 2.0, "");
        found.figure("share", Target::None, 12.34, " %");
        found.keys((3, 2));
        let mut report = Report::new(Pace { is_quick: true }, None);
        report.begin();
        report.add("X1", "a fault", Some(found));
        report.add("X2", "another", None);
        report.leave_out("X3", "a third", "needs root");
        report.end();
        let page = report.markdown("");
        for line in [
            "| X1 | a fault | time | 2.500 ms | ≤ 2 ms | **missed** |",
            "| X1 | a fault | count | 2 | ≥ 2 | met |",
            "| X1 | a fault | share | 12.3 % | – |  |",
            "| X2 | another | – | – | – | **broken** |",
            "| X3 | a third | needs root |",
            "| leased units of real processes | 248 000 admissions | never above the bound | W8 to W13 |",
            "| 12 | keys without expiry, of 3 that the rows left | 1 | 0 | **missed** |",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
        assert!(report.broken());
        assert_eq!(report.tally(), "2 rows, 1 broken; figures: 1 met, 1 missed; scoreboard: 0 met, 1 missed");
    }
}
