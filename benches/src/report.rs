//! What was measured, as one page of Markdown.

use std::fmt::Write as _;

use crate::pace::Pace;

/// The page.
#[derive(Debug)]
pub(crate) struct Report {
    head: String,
    goals: Vec<Goal>,
    tables: Vec<Table>,
}

/// What a section found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) tables: Vec<Table>,
    pub(crate) goals: Vec<Goal>,
}

/// A target of the project, beside what was measured.
#[derive(Debug)]
pub(crate) struct Goal {
    measure: String,
    target: Target,
    measured: f64,
    unit: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// A table with what one must know to read it.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    about: String,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Findings {
    /// Nothing was measured, for this reason.
    pub(crate) fn left_out(title: &str, reason: &str) -> Self {
        Self { tables: vec![Table::new(title, format!("Left out: {reason}."), &[])], goals: Vec::new() }
    }

    pub(crate) fn goal(&mut self, measure: impl Into<String>, target: Target, measured: f64, unit: &'static str) {
        self.goals.push(Goal { measure: measure.into(), target, measured, unit });
    }
}

impl Goal {
    fn is_met(&self) -> bool {
        match self.target {
            Target::AtMost(bound) => self.measured <= bound,
            Target::AtLeast(bound) => self.measured >= bound,
        }
    }

    fn row(&self) -> Vec<String> {
        let (sign, bound) = match self.target {
            Target::AtMost(bound) => ('≤', bound),
            Target::AtLeast(bound) => ('≥', bound),
        };
        vec![
            self.measure.clone(),
            format!("{sign} {bound}{}", self.unit),
            format!("{}{}", figure(self.measured), self.unit),
            if self.is_met() { "met".to_owned() } else { "**missed**".to_owned() },
        ]
    }
}

impl Table {
    pub(crate) fn new(title: &str, about: impl Into<String>, heads: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            about: about.into(),
            heads: heads.iter().map(|&head| head.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn write(&self, page: &mut String) {
        let _ = writeln!(page, "\n## {}\n\n{}", self.title, self.about);
        if self.rows.is_empty() {
            return;
        }
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = vec!["---".to_owned(); self.heads.len()];
        *page += &format!("\n{}{}", line(&self.heads), line(&rule));
        self.rows.iter().for_each(|row| *page += &line(row));
    }
}

impl Report {
    pub(crate) fn new(machine: &str, pace: &Pace) -> Self {
        let head = format!(
            "# Measured\n\n\
             Written by `cargo xtask bench`. {machine}\n\n\
             Median of {} alternated turns each, of {} inside the process; a ratio is taken within a round before the median is, so ratios hold \
             where absolute figures drift. Everything runs over loopback: a network adds its latency to every trip, \
             for everybody.{}\n",
            pace.load.count,
            pace.inside.count,
            if pace.is_quick { " This was a quick run: expect several per cent of noise." } else { "" }
        );
        Self { head, goals: Vec::new(), tables: Vec::new() }
    }

    pub(crate) fn add(&mut self, findings: Findings) {
        self.goals.extend(findings.goals);
        self.tables.extend(findings.tables);
    }

    pub(crate) fn markdown(&self) -> String {
        let mut page = self.head.clone();
        let mut goals = Table::new(
            "Targets",
            "What the project wants to reach, beside what was measured in this run; [what stands in the way](profile.md) of the rest.",
            &["measure", "target", "measured", ""],
        );
        self.goals.iter().for_each(|goal| goals.row(goal.row()));
        if !self.goals.is_empty() {
            goals.write(&mut page);
        }
        self.tables.iter().for_each(|table| table.write(&mut page));
        page
    }
}

/// A number with as many digits as mean something.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".to_owned(),
        it if it < 10.0 => format!("{value:.2}"),
        it if it < 100.0 => format!("{value:.1}"),
        it if it < 10_000.0 => format!("{value:.0}"),
        it if it < 1e6 => format!("{:.0} k", value / 1e3),
        _ => format!("{:.2} M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_show_what_means_something() {
        let shown: Vec<_> = [0.987_6, 12.34, 345.6, 45_678.0, 1_234_567.0, f64::NAN].map(figure).into();
        assert_eq!(shown, ["0.99", "12.3", "346", "46 k", "1.23 M", "–"]);
    }

    #[test]
    fn a_missed_target_says_so() {
        let mut findings = Findings::default();
        findings.goal("speed", Target::AtLeast(2.0), 1.5, " ×");
        findings.goal("cost", Target::AtMost(2.0), 1.5, " µs");
        assert_eq!(findings.goals[0].row(), ["speed", "≥ 2 ×", "1.50 ×", "**missed**"]);
        assert_eq!(findings.goals[1].row(), ["cost", "≤ 2 µs", "1.50 µs", "met"]);
    }
}
