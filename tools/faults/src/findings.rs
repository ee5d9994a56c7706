//! The figures of a row, and their targets.

/// The figures of a row.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) figures: Vec<Figure>,
    pub(crate) scores: Vec<(u8, Figure)>,
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
    /// Adds a figure of the row.
    pub(crate) fn figure(&mut self, asked: impl Into<String>, target: Target, measured: f64, unit: &'static str) {
        self.figures.push(Figure { asked: asked.into(), target, measured, unit });
    }

    /// Adds a figure of the scoreboard, under its number there.
    pub(crate) fn score(&mut self, at: u8, asked: &str, target: Target, measured: f64, unit: &'static str) {
        self.scores.push((at, Figure { asked: asked.to_owned(), target, measured, unit }));
    }

    /// Adds the keys that the row left at a server, and the number of those that expire.
    pub(crate) fn keys(&mut self, (keys, expiring): (u64, u64)) {
        self.keys += keys;
        self.expiring += expiring;
    }
}

impl Figure {
    pub(crate) fn target(&self) -> String {
        match self.target {
            Target::AtMost(0.0) => format!("0{}", self.unit),
            Target::AtMost(bound) => format!("≤ {bound}{}", self.unit),
            Target::AtLeast(bound) => format!("≥ {bound}{}", self.unit),
            Target::None => "–".to_owned(),
        }
    }

    pub(crate) fn measured(&self) -> String {
        format!("{}{}", shown(self.measured), self.unit)
    }

    /// `None` without a target.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::AtMost(bound) => Some(self.measured <= bound),
            Target::AtLeast(bound) => Some(self.measured >= bound),
            Target::None => None,
        }
    }

    pub(crate) fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }

    pub(crate) fn cells(&self) -> String {
        let verdict = if self.is_met() == Some(false) { "**missed**" } else { self.verdict() };
        format!("{} | {} | {} | {verdict} |", self.asked, self.measured(), self.target())
    }
}

/// Formats a number with its significant digits.
fn shown(value: f64) -> String {
    match value.abs() {
        it if it.fract() == 0.0 => format!("{value:.0}"),
        it if it < 10.0 => format!("{value:.3}"),
        _ => format!("{value:.1}"),
    }
}
