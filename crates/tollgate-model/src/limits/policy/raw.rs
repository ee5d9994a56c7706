//! Gives stores and limiters the parts of a policy. Its face for everybody is in `mod.rs` beside.

use std::ptr;

use super::{LEASED_READING, Policy};
use crate::{
    Key, Quota,
    key::{KeyLevel, KeyParts},
};

/// Reads what a policy meters, and how its level looks in a reply.
pub trait PolicyParts: Sized {
    /// Borrows the quota.
    fn quota_ref(&self) -> &Quota;

    /// Returns the number of integers of a reading.
    fn reading_len(&self) -> usize;

    /// Returns the branch of a key that the policy meters. A key without branches returns itself.
    fn branch_of<'a>(&self, key: &'a Key) -> &'a Key;

    /// Returns the levels of a key that the policy meters.
    fn metered<'a>(&self, key: &'a Key) -> KeyLevel<'a>;

    /// Returns `true` when the state belongs to this key, or to one branch of it, alone, and not to
    /// an outer level, which other keys share.
    fn is_own(&self, key: &Key) -> bool;

    /// Returns what a key must have for this policy. A key without branches and with a
    /// [reach](Key::reach) as large has it.
    fn reach(&self) -> u8;

    /// Returns whether replicas take units in advance.
    fn is_leased(&self) -> bool;

    /// Returns `true` when both policies use the same stored state: they have the same name and the
    /// same form of state.
    fn shares_state(&self, other: &Self) -> bool;

    /// Returns a hash of the name, which separates the states of one key in the in-process store.
    /// Policies of the same name have the same hash.
    fn name_hash(&self) -> u32;

    /// Returns the interval of the policy that stored a state, if this policy has
    /// another one.
    fn other_interval_us(&self, wrote: &Self) -> Option<f64>;

    /// Returns the end of the name of a state: the letter and the storage version of the algorithm.
    /// The state of a leased policy has another form, and so another end.
    fn tag(&self) -> [&'static str; 2];
}

impl PolicyParts for Policy {
    #[inline]
    fn quota_ref(&self) -> &Quota {
        Self::quota_ref(self)
    }

    #[inline]
    fn reading_len(&self) -> usize {
        if self.is_leased() {
            LEASED_READING
        } else {
            self.algorithm.facts().reading_len
        }
    }

    #[inline]
    fn branch_of<'a>(&self, key: &'a Key) -> &'a Key {
        key.branch(self.reach >> 4)
    }

    #[inline]
    fn metered<'a>(&self, key: &'a Key) -> KeyLevel<'a> {
        self.branch_of(key).level(self.depth())
    }

    fn is_own(&self, key: &Key) -> bool {
        let branch = key.branches().get(usize::from(self.reach >> 4));
        branch
            .is_some_and(|branch| self.depth() == 0 || usize::from(self.depth()) == branch.levels())
    }

    #[inline]
    fn reach(&self) -> u8 {
        self.reach
    }

    #[inline]
    fn is_leased(&self) -> bool {
        self.lease.is_leased()
    }

    #[inline]
    fn shares_state(&self, other: &Self) -> bool {
        self.algorithm.reads(other.algorithm)
            && self.is_leased() == other.is_leased()
            && self.name() == other.name()
    }

    #[inline]
    fn name_hash(&self) -> u32 {
        self.name.upper_hash()
    }

    #[inline]
    fn other_interval_us(&self, wrote: &Self) -> Option<f64> {
        if ptr::eq(self, wrote) {
            return None;
        }
        Some(wrote.interval_us()).filter(|interval| *interval != self.interval_us())
    }

    fn tag(&self) -> [&'static str; 2] {
        [
            self.algorithm.tag(),
            if self.is_leased() { "l1" } else { "" },
        ]
    }
}
