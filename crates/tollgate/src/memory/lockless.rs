use std::sync::LazyLock;

use foldhash::fast::RandomState;

use super::{hash, shard::Shard};
use crate::{Check, Decision, Key, PolicySet};

/// The states of a [`MemoryStore`](crate::MemoryStore) without a lock and a clock, for tests that
/// bring others. Two that were asked the same hold the same.
#[derive(Debug)]
pub struct Lockless(Shard);

/// One for all, for what is dropped of many that are alike depends on it.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

impl Lockless {
    /// With room for so many states.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self(Shard::new(room, HASHER.clone()))
    }

    /// Decides.
    pub fn check(&mut self, check: Check<'_>, now_us: u64) -> Decision {
        let readings = self.0.check(of(check.key), check, now_us);
        Decision::from_readings(check.policies, readings, check.cost, now_us)
    }

    /// Gives back at `now_us` what `check` says was spent at `spent_us`.
    pub fn refund(&mut self, check: Check<'_>, now_us: u64, spent_us: u64) {
        self.0.refund(of(check.key), check, now_us, spent_us);
    }

    /// Makes the key fresh.
    pub fn reset(&mut self, policies: &PolicySet, key: &Key) {
        self.0.reset(of(key), policies, key);
    }

    /// How many states there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

fn of(key: &Key) -> u64 {
    hash(&HASHER, key.as_bytes())
}
