//! Chooses how long and how often a row runs.

/// The number of repetitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) is_quick: bool,
}

impl Pace {
    /// Returns one value for a full run, the other for a quick one.
    pub(crate) fn of<T>(self, full: T, quick: T) -> T {
        if self.is_quick { quick } else { full }
    }
}
