//! The figures of a row, and their targets.

/// The figures of a row.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Figure>);

/// A measured figure, and the most that it should be.
#[derive(Debug)]
struct Figure {
    asked: String,
    measured: f64,
    unit: &'static str,
    target: Option<f64>,
}

impl Findings {
    /// Adds a figure that is only reported.
    pub(crate) fn shown(&mut self, asked: impl Into<String>, measured: f64, unit: &'static str) {
        self.add(asked.into(), measured, unit, None);
    }

    /// Adds a figure with a target.
    pub(crate) fn at_most(
        &mut self,
        target: f64,
        asked: impl Into<String>,
        measured: f64,
        unit: &'static str,
    ) {
        self.add(asked.into(), measured, unit, Some(target));
    }

    fn add(&mut self, asked: String, measured: f64, unit: &'static str, target: Option<f64>) {
        self.0.push(Figure {
            asked,
            measured,
            unit,
            target,
        });
    }

    /// Returns how many figures meet their targets, and how many miss them.
    pub(crate) fn tally(&self) -> [usize; 2] {
        [true, false].map(|met| {
            let figures = self.0.iter().filter_map(Figure::is_met);
            figures.filter(|is_met| *is_met == met).count()
        })
    }

    /// Returns the lines of the table.
    pub(crate) fn lines(&self, id: &str, fault: &str) -> impl Iterator<Item = String> {
        let line = move |figure: &Figure| format!("| {id} | {fault} | {} |", figure.cells());
        self.0.iter().map(line)
    }
}

impl Figure {
    fn is_met(&self) -> Option<bool> {
        self.target.map(|target| self.measured <= target)
    }

    fn cells(&self) -> String {
        let Self {
            asked,
            measured,
            unit,
            target,
        } = self;
        let measured = match measured.abs() {
            it if it.fract() == 0.0 => format!("{measured:.0}"),
            it if it < 10.0 => format!("{measured:.3}"),
            _ => format!("{measured:.1}"),
        };
        let target = target.map_or("–".to_owned(), |target| format!("≤ {target} {unit}"));
        let verdict = match self.is_met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        };
        format!("{asked} | {measured} {unit} | {target} | {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_measured_and_whether_the_target_is_met() {
        let mut found = Findings::default();
        found.at_most(2.0, "time", 2.5, "ms");
        found.at_most(2.0, "memory", 2.0, "MiB");
        found.shown("share", 12.34, "%");
        assert_eq!(found.tally(), [1, 1]);
        assert_eq!(
            found.lines("X1", "a fault").collect::<Vec<_>>(),
            [
                "| X1 | a fault | time | 2.500 ms | ≤ 2 ms | **missed** |",
                "| X1 | a fault | memory | 2 MiB | ≤ 2 MiB | met |",
                "| X1 | a fault | share | 12.3 % | – |  |",
            ]
        );
    }
}
