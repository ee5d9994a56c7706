//! Formats the results as tables of text, and the targets beside them.

use std::fmt::Write as _;

use crate::pace::Pace;

/// Collects the results of all sections.
#[derive(Debug)]
pub(crate) struct Report {
    head: String,
    /// The goals, with the section that measures each.
    goals: Vec<(&'static str, Goal)>,
    tables: Vec<Table>,
}

/// Stores the results of one section.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) tables: Vec<Table>,
    pub(crate) goals: Vec<Goal>,
}

/// Compares a target of the project with the measured figure.
#[derive(Debug)]
pub(crate) struct Goal {
    measure: String,
    target: Target,
    measured: f64,
    unit: &'static str,
}

/// Sets the bound that a figure has to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// Stores a table, with the text that explains it.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    about: String,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Findings {
    /// Reports that a section was left out, and why.
    pub(crate) fn left_out(title: &str, reason: &str) -> Self {
        Self {
            tables: vec![Table::new(title, format!("Left out: {reason}."), &[])],
            goals: Vec::new(),
        }
    }

    pub(crate) fn goal(
        &mut self,
        measure: impl Into<String>,
        target: Target,
        measured: f64,
        unit: &'static str,
    ) {
        self.goals.push(Goal {
            measure: measure.into(),
            target,
            measured,
            unit,
        });
    }
}

impl Goal {
    fn is_met(&self) -> bool {
        match self.target {
            Target::AtMost(bound) => self.measured <= bound,
            Target::AtLeast(bound) => self.measured >= bound,
        }
    }

    fn row(&self, section: &str) -> Vec<String> {
        let (sign, bound) = match self.target {
            Target::AtMost(bound) => ('≤', bound),
            Target::AtLeast(bound) => ('≥', bound),
        };
        vec![
            self.measure.clone(),
            format!("`{section}`"),
            format!("{sign} {bound}{}", self.unit),
            format!("{}{}", figure(self.measured), self.unit),
            if self.is_met() {
                "met".to_owned()
            } else {
                "**missed**".to_owned()
            },
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
        *page += &format!("\n{}", line(&self.heads));
        self.rows.iter().for_each(|row| *page += &line(row));
    }
}

impl Report {
    pub(crate) fn new(machine: &str, pace: &Pace) -> Self {
        let head = format!(
            "# Measured\n\n\
             Printed by `cargo xtask bench`. {machine}\n\n\
             Each figure is the median of {} turns, or of {} turns in process. The turns of all contestants alternate. \
             A ratio is computed within one round, before the median is taken. For this reason ratios stay valid \
             when the speed of the machine changes. In a label, *A to B* means the figure of A divided by the figure \
             of B; *to B* means the figure of the row divided by the figure of B. All connections use the loopback \
             interface. The tables that begin with *Distance* add the latency of a network.{}\n",
            pace.load.count,
            pace.inside.count,
            if pace.is_quick {
                " This was a quick run: the figures vary by several per cent."
            } else {
                ""
            }
        );
        Self {
            head,
            goals: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Adds the results of the section with this name.
    pub(crate) fn add(&mut self, section: &'static str, findings: Findings) {
        self.goals
            .extend(findings.goals.into_iter().map(|goal| (section, goal)));
        self.tables.extend(findings.tables);
    }

    /// Returns the tables.
    pub(crate) fn text(&self) -> String {
        let mut page = self.head.clone();
        self.tables.iter().for_each(|table| table.write(&mut page));
        page
    }

    /// Returns the targets of the project with the figures of this run, which belong on no page: a
    /// reader compares with what exists.
    pub(crate) fn targets(&self) -> String {
        let mut goals = Table::new(
            "Targets",
            "`cargo xtask bench SECTION` runs one section.",
            &["measure", "section", "target", "measured", ""],
        );
        self.goals
            .iter()
            .for_each(|(section, goal)| goals.row(goal.row(section)));
        let mut text = String::new();
        goals.write(&mut text);
        text
    }
}

/// Formats a number with at most two decimal places. It ends with `k` from ten thousand and with
/// `M` from a million.
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
    fn figures_are_rounded_to_what_a_reader_can_use() {
        let shown: Vec<_> = [0.987_6, 12.34, 345.6, 45_678.0, 1_234_567.0, f64::NAN]
            .map(figure)
            .into();
        assert_eq!(shown, ["0.99", "12.3", "346", "46 k", "1.23 M", "–"]);
    }

    #[test]
    fn a_table_has_its_title_its_text_and_its_rows() {
        let mut table = Table::new("Speed", "Who is fast.", &["who", "time"]);
        table.row(["we", "1 µs"].map(str::to_owned));
        let mut page = String::new();
        table.write(&mut page);
        assert_eq!(
            page,
            "\n## Speed\n\nWho is fast.\n\n| who | time |\n| we | 1 µs |\n"
        );
    }

    #[test]
    fn a_missed_target_is_marked() {
        let mut findings = Findings::default();
        findings.goal("speed", Target::AtLeast(2.0), 1.5, " ×");
        findings.goal("cost", Target::AtMost(2.0), 1.5, " µs");
        assert_eq!(
            findings.goals[0].row("check"),
            ["speed", "`check`", "≥ 2 ×", "1.50 ×", "**missed**"]
        );
        assert_eq!(
            findings.goals[1].row("http"),
            ["cost", "`http`", "≤ 2 µs", "1.50 µs", "met"]
        );
    }
}
