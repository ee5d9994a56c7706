//! The table of states without locks and clock, for the tests of this project.
//! Services use `MemoryStore`, in `store.rs`.

use std::sync::LazyLock;

use foldhash::fast::RandomState;
use tollgate_model::raw::{DecisionParts, KeyParts};

use super::{
    state_table::StateTable,
    tables::{OneTable, check_in},
};
use crate::{
    Cost, Decision, Key, PolicySet,
    store::{Check, step},
};

/// The states of a [`MemoryStore`](crate::MemoryStore) without a lock and without a clock.
///
/// Tests bring their own lock and clock. Two values that received the same calls hold the same
/// states. Keys have no branches here.
#[derive(Debug)]
pub struct Lockless(StateTable);

/// All values share one hasher, because the hash decides which of several equally fresh states is
/// dropped.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

impl Lockless {
    /// Creates an empty value with room for `room` states.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self(StateTable::new(room, HASHER.clone()))
    }

    /// Decides at `now_us`.
    pub fn check(&mut self, check: Check<'_>, now_us: u64) -> Decision {
        let levels = check_in(&mut self.0, hash(check.key), check, now_us);
        Decision::from_levels(check.policies, levels, check.charge(), now_us)
    }

    /// Refunds at `now_us` the cost of `check`, as if it was spent then.
    pub fn refund(&mut self, check: Check<'_>, now_us: u64) {
        let mut table = OneTable {
            table: &mut self.0,
            hash: hash(check.key),
            key: check.key,
        };
        step::refund(&mut table, check, now_us, now_us, None);
    }

    /// Removes the states that belong to the key alone.
    pub fn reset(&mut self, policies: &PolicySet, key: &Key) {
        let mut table = OneTable {
            table: &mut self.0,
            hash: hash(key),
            key,
        };
        step::reset(&mut table, Check::new(policies, key, Cost::ZERO));
    }

    /// Returns the number of states.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

fn hash(key: &Key) -> u64 {
    key.level(1).hash(&HASHER)
}
