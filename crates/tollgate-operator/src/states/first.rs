//! Selects the states that are shown.
//! States are read by `scan.rs`.

use std::{cmp::Ordering, mem};

use super::entry::StateEntry;

/// Selects the order of states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By the units that are spent.
    #[default]
    Spent,
    /// By the share of the limit that is spent, where the limit is known.
    Share,
}

/// The first states in an order.
#[derive(Debug)]
pub struct First {
    states: Vec<StateEntry>,
    most: usize,
    by: Order,
}

impl First {
    /// Creates an empty list of up to this many states.
    #[must_use]
    pub fn new(most: u32, by: Order) -> Self {
        Self {
            states: Vec::new(),
            most: most as usize,
            by,
        }
    }

    /// Adds a state of a scan.
    pub fn add(&mut self, state: StateEntry) {
        let is_before = |other: &StateEntry| self.compare(&state, other) != Ordering::Greater;
        let at = self
            .states
            .iter()
            .rposition(|other| !is_before(other))
            .map_or(0, |last| last + 1);
        // A scan may find a key twice.
        if at < self.most
            && !self
                .states
                .iter()
                .any(|other| other.redis_key == state.redis_key)
        {
            self.states.insert(at, state);
            self.states.truncate(self.most);
        }
    }

    /// Returns the first states, and begins again.
    pub fn take(&mut self) -> Vec<StateEntry> {
        mem::take(&mut self.states)
    }

    /// Compares so that the most used state comes first.
    fn compare(&self, a: &StateEntry, b: &StateEntry) -> Ordering {
        let by_spent = || {
            b.spent
                .cmp(&a.spent)
                .then_with(|| a.redis_key.cmp(&b.redis_key))
        };
        match self.by {
            Order::Spent => by_spent(),
            // A state without a limit comes last.
            Order::Share => {
                let share = |entry: &StateEntry| entry.share().unwrap_or(-1.0);
                share(b).total_cmp(&share(a)).then_with(by_spent)
            }
        }
    }
}
