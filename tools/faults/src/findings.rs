//! The figures of a row, and their targets.

use crate::load::{Sample, quantile};

/// The figures of a row.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) figures: Vec<Figure>,
    pub(crate) keys: u64,
    pub(crate) expiring: u64,
}

/// A measured figure and its target.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) asked: String,
    pub(crate) target: Target,
    pub(crate) measured: f64,
    pub(crate) unit: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// There is no target: the figure is only reported.
    None,
}

impl Findings {
    /// Adds a figure of the row. Without a target it is only reported.
    pub(crate) fn figure(
        &mut self,
        asked: impl Into<String>,
        measured: f64,
        unit: &'static str,
    ) -> &mut Figure {
        self.figures.push(Figure {
            asked: asked.into(),
            target: Target::None,
            measured,
            unit,
        });
        let last = self.figures.len() - 1;
        &mut self.figures[last]
    }

    /// Adds a time.
    pub(crate) fn ms(&mut self, asked: impl Into<String>, measured: f64) -> &mut Figure {
        self.figure(asked, measured, " ms")
    }

    /// Adds the longest time of these checks, which exceeds the default deadline by the time that a
    /// process takes to be woken.
    pub(crate) fn longest_check(&mut self, samples: &[Sample]) {
        self.ms("longest check", quantile(samples, 1.0))
            .at_most(70.0);
    }

    /// Adds a share.
    pub(crate) fn percent(&mut self, asked: impl Into<String>, measured: f64) -> &mut Figure {
        self.figure(asked, measured, " %")
    }

    /// Adds a number.
    pub(crate) fn count(&mut self, asked: impl Into<String>, measured: f64) -> &mut Figure {
        self.figure(asked, measured, "")
    }

    /// Adds the keys that the row left at a server, and the number of those that expire.
    pub(crate) fn keys(&mut self, (keys, expiring): (u64, u64)) {
        self.keys += keys;
        self.expiring += expiring;
    }
}

impl Figure {
    pub(crate) fn at_most(&mut self, bound: f64) {
        self.target = Target::AtMost(bound);
    }

    pub(crate) fn at_least(&mut self, bound: f64) {
        self.target = Target::AtLeast(bound);
    }

    /// `None` without a target.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::AtMost(bound) => Some(self.measured <= bound),
            Target::AtLeast(bound) => Some(self.measured >= bound),
            Target::None => None,
        }
    }

    /// Formats the figure of a row as a line of the table.
    pub(crate) fn line(&self, id: &str, fault: &str) -> String {
        let target = match self.target {
            Target::AtMost(0.0) => format!("0{}", self.unit),
            Target::AtMost(bound) => format!("≤ {bound}{}", self.unit),
            Target::AtLeast(bound) => format!("≥ {bound}{}", self.unit),
            Target::None => "–".to_owned(),
        };
        let verdict = self
            .is_met()
            .map_or("", |is_met| if is_met { "met" } else { "**missed**" });
        let measured = match self.measured.abs() {
            it if it.fract() == 0.0 => format!("{:.0}", self.measured),
            it if it < 10.0 => format!("{:.3}", self.measured),
            _ => format!("{:.1}", self.measured),
        };
        format!(
            "| {id} | {fault} | {} | {measured}{} | {target} | {verdict} |",
            self.asked, self.unit
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_measured_and_whether_the_target_is_met() {
        let mut found = Findings::default();
        found.ms("time", 2.5).at_most(2.0);
        found.count("count", 2.0).at_least(2.0);
        found.percent("share", 12.34);
        let lines: Vec<_> = found
            .figures
            .iter()
            .map(|figure| figure.line("X1", "a fault"))
            .collect();
        assert_eq!(
            lines,
            [
                "| X1 | a fault | time | 2.500 ms | ≤ 2 ms | **missed** |",
                "| X1 | a fault | count | 2 | ≥ 2 | met |",
                "| X1 | a fault | share | 12.3 % | – |  |",
            ]
        );
    }
}
