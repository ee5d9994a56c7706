//! Formats the results as tables of text, and the targets beside them.

use std::fmt::Write as _;

/// Stores the results of one section.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) tables: Vec<Table>,
    goals: Vec<[String; 4]>,
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

    /// Compares a target of the project with the measured figure.
    pub(crate) fn goal(
        &mut self,
        measure: impl Into<String>,
        target: Target,
        measured: f64,
        unit: &str,
    ) {
        let (sign, bound, is_met) = match target {
            Target::AtMost(bound) => ('≤', bound, measured <= bound),
            Target::AtLeast(bound) => ('≥', bound, measured >= bound),
        };
        self.goals.push([
            measure.into(),
            format!("{sign} {bound}{unit}"),
            format!("{}{unit}", figure(measured)),
            if is_met { "met" } else { "**missed**" }.to_owned(),
        ]);
    }

    /// Returns the targets with the figures of these results, which belong on no page: a reader
    /// compares with what exists.
    pub(crate) fn targets(self) -> Table {
        let heads = ["measure", "target", "measured", ""];
        let mut table = Table::new("Targets", "", &heads);
        self.goals.into_iter().for_each(|goal| table.row(goal));
        table
    }

    /// Adds the results of another section.
    pub(crate) fn add(&mut self, other: Self) {
        self.tables.extend(other.tables);
        self.goals.extend(other.goals);
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

    pub(crate) fn text(&self) -> String {
        let mut page = format!("\n## {}\n\n{}\n", self.title, self.about);
        let head = (!self.rows.is_empty()).then_some(&self.heads);
        for (at, cells) in head.into_iter().chain(&self.rows).enumerate() {
            let before = if at == 0 { "\n" } else { "" };
            // Writing to memory cannot fail.
            let _ = writeln!(page, "{before}| {} |", cells.join(" | "));
        }
        page
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
    fn a_table_has_its_title_its_text_and_its_rows_and_a_missed_target_is_marked() {
        let mut findings = Findings::default();
        findings.goal("speed", Target::AtLeast(2.0), 1.5, " ×");
        findings.goal("cost", Target::AtMost(2.0), 1.5, " µs");
        let expected = "\n## Targets\n\n\n\n| measure | target | measured |  |\n\
                        | speed | ≥ 2 × | 1.50 × | **missed** |\n| cost | ≤ 2 µs | 1.50 µs | met |\n";
        assert_eq!(findings.targets().text(), expected);
    }
}
