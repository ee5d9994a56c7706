//! Rows: the settings that are explored, and the mistakes that have to be found.
//! Those of a protocol stand beside its rules: `rows.rs` and `mistakes.rs`.

use std::fmt;

use crate::explorer::{Explored, Limits, Protocol, Violation, explore};

/// A setting without a mistake, in which no state violates an invariant.
#[derive(Debug)]
pub struct Row<P> {
    /// The name by which a command chooses it.
    pub name: &'static str,
    /// Says what may happen.
    pub says: &'static str,
    /// The setting.
    pub setting: P,
    /// The most steps to a state. All states if it is `None`.
    pub depth: Option<usize>,
    /// The number of states, for rows that the tests explore.
    pub states: Option<usize>,
}

/// A setting with a mistake, and what finds it.
#[derive(Debug)]
pub struct Seeded<P> {
    /// Says what is wrong.
    pub says: &'static str,
    /// The setting without the mistake.
    pub sound: P,
    /// The same setting with it.
    pub mistaken: P,
    /// The invariant that finds the mistake.
    pub invariant: &'static str,
    /// The number of steps to the first state that violates it.
    pub steps: usize,
    /// The number of states of the setting without the mistake.
    pub states: usize,
}

impl<P: Protocol> Row<P> {
    /// Visits the states of the row.
    #[must_use]
    pub fn explore(&self) -> Explored<P::Step> {
        let limits = Limits {
            depth: self.depth,
            only: None,
        };
        explore(&self.setting, limits)
    }
}

impl<P: Protocol> Seeded<P> {
    /// Returns the shortest way to a state that violates the invariant of the mistake.
    #[must_use]
    pub fn find(&self) -> Option<Violation<P::Step>> {
        let limits = Limits {
            depth: None,
            only: Some(self.invariant),
        };
        explore(&self.mistaken, limits).violation
    }
}

impl<S: fmt::Debug> fmt::Display for Violation<S> {
    /// Lists the steps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is violated after:", self.invariant)?;
        self.path
            .iter()
            .try_for_each(|step| write!(f, "\n  {step:?}"))
    }
}
