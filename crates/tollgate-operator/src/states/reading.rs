//! A state, as a server has it under a key and as a scan has read it.
//! When a state is read is decided by each program. Its bytes are decoded, and two states are
//! compared, by the core.

use tollgate::{Quota, store::StoredState};

/// Shows what a server has under the key of a state.
pub(super) enum Looked {
    /// Nothing: the state has expired.
    Nothing,
    /// The value of another program.
    Foreign,
    State {
        stored: StoredState,
        /// The milliseconds until it expires.
        expires_ms: u64,
        /// The time of the unit of a log that has to leave before one more fits.
        marked_us: Option<u64>,
    },
}

/// A state, as a scan has read it.
#[derive(Clone, Debug)]
pub struct Reading {
    stored: StoredState,
    /// The units that were spent at that moment.
    spent: u64,
    /// The server's time, in microseconds since the Unix epoch.
    at_us: u64,
}

impl Reading {
    /// Creates the reading of a state in which this many units were spent at this time of the server,
    /// in microseconds since the Unix epoch.
    #[must_use]
    pub fn new(stored: StoredState, spent: u64, at_us: u64) -> Self {
        Self {
            stored,
            spent,
            at_us,
        }
    }

    /// Returns the units that were spent at that moment.
    pub(super) fn spent(&self) -> u64 {
        self.spent
    }

    /// Returns the state, and the server's time at which it was read, in microseconds since the
    /// Unix epoch.
    pub(super) fn stored(&self) -> (&StoredState, u64) {
        (&self.stored, self.at_us)
    }

    /// Returns the units that were spent since an earlier reading of the same state, at least.
    ///
    /// [`StoredState::spent_since`] says which units are missed. Without an earlier reading, the
    /// units count that the state has now.
    #[must_use]
    pub fn spent_since(&self, before: Option<&Self>, quota: Option<&Quota>) -> u64 {
        let Some(before) = before else {
            return self.spent;
        };
        let spent = self.stored.spent_since(&before.stored, self.at_us, quota);
        // The quota has changed.
        spent.unwrap_or_else(|| self.spent.saturating_sub(before.spent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_state_and_one_of_another_quota_count_by_what_they_have_spent() {
        let at = |pace, spent| {
            let (full_us, part) = (105_000_000, 0);
            let bucket = StoredState::Bucket {
                full_us,
                part,
                pace,
            };
            Reading::new(bucket, spent, 100_000_000)
        };
        assert_eq!(at(1e6, 5).spent_since(None, None), 5);
        assert_eq!(at(1e6, 5).spent_since(Some(&at(1e6, 5)), None), 0);
        assert_eq!(at(5e5, 10).spent_since(Some(&at(1e6, 5)), None), 5);
    }
}
