//! Traits over the public types of the crate: what a store reads of them beyond their public face.
//! Each method passes on to the method of the same name, which the rooms of this crate use. A new one
//! belongs here when a store in another crate needs it.

use std::{sync::Arc, time::Instant};

use crate::{
    Algorithm, Cost, Decision, Error, Key, Lease, Policy, PolicySet, Quota,
    model::{
        charge::{Charge, ChargeRef},
        decision::PolicyLevels,
        key::KeyLevel,
        policy_set::Derived,
        quota::Span,
    },
    store::Check,
};

/// Reads a check as its charge, and changes it.
pub trait CheckParts<'a>: Sized {
    /// Returns the costs and the ceilings of the check.
    fn charge(&self) -> ChargeRef<'a>;

    /// Returns the number of a commit: that of the limiter, which may send it again, or a random one.
    fn number(&self) -> u64;

    /// Returns the same check with another charge.
    fn with_charge(self, charge: &'a Charge) -> Self;

    /// Returns the same check at no cost, and without ceilings.
    fn without_cost(self) -> Self;
}

impl<'a> CheckParts<'a> for Check<'a> {
    #[inline]
    fn charge(&self) -> ChargeRef<'a> {
        Check::charge(self)
    }

    #[inline]
    fn number(&self) -> u64 {
        Check::number(self)
    }

    #[inline]
    fn with_charge(self, charge: &'a Charge) -> Self {
        Check::with_charge(self, charge)
    }

    #[inline]
    fn without_cost(self) -> Self {
        Check::without_cost(self)
    }
}

/// Makes a decision of the levels of its policies, and reads them.
pub trait DecisionParts: Sized {
    /// Creates a decision of these levels, which a store found at `at_us`, in microseconds on its own
    /// clock. 0 if it did not say.
    fn from_levels(
        policies: &PolicySet,
        levels: PolicyLevels,
        charge: ChargeRef<'_>,
        at_us: u64,
    ) -> Self;

    /// Marks a denial that the process remembered. The store did not decide it now.
    fn marked_remembered(self) -> Self;

    /// Marks a decision over units that this process had been granted before.
    fn marked_leased(self) -> Self;

    /// Returns the costs of the check.
    fn charge(&self) -> ChargeRef<'_>;

    /// Returns the level of each policy.
    fn levels(&self) -> &PolicyLevels;

    /// Returns the time from this decision until the bucket at this place of the set is full, or the
    /// queue empty: in microseconds and parts of one. `None` for every other policy.
    fn ahead_of(&self, at: usize) -> Option<Span>;

    /// Returns when the store decided, in microseconds on its own clock. 0 if it did not say.
    fn at_us(&self) -> u64;

    /// Returns the time of a decision whose store did not say when it decided: the request was sent at
    /// `sent`.
    fn here_us(sent: Instant) -> u64;

    /// Returns how long ago the request was sent, in microseconds, to a store that did not say when it
    /// decided.
    fn age_us(&self) -> Option<u64>;
}

impl DecisionParts for Decision {
    #[inline]
    fn from_levels(
        policies: &PolicySet,
        levels: PolicyLevels,
        charge: ChargeRef<'_>,
        at_us: u64,
    ) -> Self {
        Self::from_levels(policies, levels, charge, at_us)
    }

    #[inline]
    fn marked_remembered(self) -> Self {
        Self::marked_remembered(self)
    }

    #[inline]
    fn marked_leased(self) -> Self {
        Self::marked_leased(self)
    }

    #[inline]
    fn charge(&self) -> ChargeRef<'_> {
        Self::charge(self)
    }

    #[inline]
    fn levels(&self) -> &PolicyLevels {
        Self::levels(self)
    }

    #[inline]
    fn ahead_of(&self, at: usize) -> Option<Span> {
        Self::ahead_of(self, at)
    }

    #[inline]
    fn at_us(&self) -> u64 {
        Self::at_us(self)
    }

    #[inline]
    fn here_us(sent: Instant) -> u64 {
        Self::here_us(sent)
    }

    #[inline]
    fn age_us(&self) -> Option<u64> {
        Self::age_us(self)
    }
}

/// Reads the levels and the branches of a key.
pub trait KeyParts: Sized {
    /// Returns the text of all levels, as it is in the names of states.
    fn as_bytes(&self) -> &[u8];

    /// Returns whether the key has several branches.
    fn has_branches(&self) -> bool;

    /// Returns the branch at this place, counted from 0. A key without branches returns itself.
    fn branch(&self, at: u8) -> &Self;

    /// Returns the number of levels of a key without branches, and 0 for a key with branches.
    fn reach(&self) -> u8;

    /// Returns the first `count` levels. Returns all levels when `count` is 0, or when the key has no
    /// more.
    fn level(&self, count: u8) -> KeyLevel<'_>;

    /// Returns the text of the outermost level.
    fn outermost(&self) -> &[u8];
}

impl KeyParts for Key {
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        Self::as_bytes(self)
    }

    #[inline]
    fn has_branches(&self) -> bool {
        Self::has_branches(self)
    }

    #[inline]
    fn branch(&self, at: u8) -> &Self {
        Self::branch(self, at)
    }

    #[inline]
    fn reach(&self) -> u8 {
        Self::reach(self)
    }

    #[inline]
    fn level(&self, count: u8) -> KeyLevel<'_> {
        Self::level(self, count)
    }

    #[inline]
    fn outermost(&self) -> &[u8] {
        Self::outermost(self)
    }
}

/// Reads how the level of an algorithm looks in a reply.
pub trait AlgorithmParts: Sized {
    /// Returns the number of words of a level.
    fn words(self) -> usize;

    /// Returns whether the second word of a level is a part of the first one: zero where the amount
    /// divides the period.
    fn is_parted(&self) -> bool;

    /// Returns whether a refund depends on the time until the bucket is full, as it was after the
    /// request. `is_capped` is set when the request had a ceiling.
    fn is_queued(&self, is_capped: bool) -> bool;
}

impl AlgorithmParts for Algorithm {
    #[inline]
    fn words(self) -> usize {
        self.facts().words
    }

    #[inline]
    fn is_parted(&self) -> bool {
        self.facts().is_parted
    }

    #[inline]
    fn is_queued(&self, is_capped: bool) -> bool {
        Self::is_queued(*self, is_capped)
    }
}

/// Reads what a policy meters, and how its level looks in a reply.
pub trait PolicyParts: Sized {
    /// Borrows the quota.
    fn quota_ref(&self) -> &Quota;

    /// Returns the number of words of a level.
    fn words(&self) -> usize;

    /// Returns the branch of a key that the policy meters. A key without branches returns itself.
    fn branch_of<'a>(&self, key: &'a Key) -> &'a Key;

    /// Returns the levels of a key that the policy meters.
    fn metered<'a>(&self, key: &'a Key) -> KeyLevel<'a>;

    /// Returns whether the state belongs to this key, or to one branch of it, alone.
    fn is_own(&self, key: &Key) -> bool;

    /// Returns the levels that a key must have for this policy. A key without branches and with a
    /// [reach](KeyParts::reach) as large has them.
    fn reach(&self) -> u8;

    /// Returns whether replicas take units in advance.
    fn is_leased(&self) -> bool;
}

impl PolicyParts for Policy {
    #[inline]
    fn quota_ref(&self) -> &Quota {
        Self::quota_ref(self)
    }

    #[inline]
    fn words(&self) -> usize {
        Self::words(self)
    }

    #[inline]
    fn branch_of<'a>(&self, key: &'a Key) -> &'a Key {
        Self::branch_of(self, key)
    }

    #[inline]
    fn metered<'a>(&self, key: &'a Key) -> KeyLevel<'a> {
        Self::metered(self, key)
    }

    #[inline]
    fn is_own(&self, key: &Key) -> bool {
        Self::is_own(self, key)
    }

    #[inline]
    fn reach(&self) -> u8 {
        Self::reach(self)
    }

    #[inline]
    fn is_leased(&self) -> bool {
        Self::is_leased(self)
    }
}

/// Reads the policies of a set together.
pub trait PolicySetParts: Sized {
    /// Returns the policies in their order.
    fn shared(&self) -> &[Arc<Policy>];

    /// Returns whether both sets have the same policies.
    fn is_same(&self, other: &Self) -> bool;

    /// Returns whether a policy of both sets has the same state for one key. Only policies with these
    /// [reaches](PolicyParts::reach) count, the first one in this set.
    fn shares_state(&self, other: &Self, reaches: (u8, u8)) -> bool;

    /// Returns what a store has derived from the set. `derive` is called for the first kind of store
    /// that asks.
    fn derived(&self, derive: impl FnOnce(&[Arc<Policy>]) -> Arc<Derived>) -> &Arc<Derived>;

    /// Returns whether replicas take units in advance.
    fn is_leased(&self) -> bool;

    /// Returns whether a policy is a sliding log, so that a check has a tag.
    fn is_tagged(&self) -> bool;

    /// Returns whether a reply without ceilings leaves out the second word of a single bucket, because
    /// it is always zero.
    fn is_short(&self) -> bool;

    /// Returns whether a refund depends on the time until a bucket is full, as it was after the request.
    fn is_queued(&self) -> bool;

    /// Returns the sliding log with the longest period, whose entries are listed.
    ///
    /// # Errors
    ///
    /// No policy of the set is a sliding log.
    fn log(&self) -> Result<&Policy, Error>;

    /// Returns whether a policy meters a level or a branch of its own, so that keys may share a state.
    fn meters_parts(&self) -> bool;

    /// Refuses a key that lacks a branch or levels that a policy meters.
    ///
    /// # Errors
    ///
    /// [`KeyLevels`](crate::ErrorKind::KeyLevels), with what is missing.
    fn reaches(&self, key: &Key) -> Result<(), Error>;

    /// Returns the branch of a key that the first policy meters. A key without branches returns itself.
    fn first_branch<'a>(&self, key: &'a Key) -> &'a Key;
}

impl PolicySetParts for PolicySet {
    #[inline]
    fn shared(&self) -> &[Arc<Policy>] {
        Self::shared(self)
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        Self::is_same(self, other)
    }

    #[inline]
    fn shares_state(&self, other: &Self, reaches: (u8, u8)) -> bool {
        Self::shares_state(self, other, reaches)
    }

    #[inline]
    fn derived(&self, derive: impl FnOnce(&[Arc<Policy>]) -> Arc<Derived>) -> &Arc<Derived> {
        Self::derived(self, derive)
    }

    #[inline]
    fn is_leased(&self) -> bool {
        Self::is_leased(self)
    }

    #[inline]
    fn is_tagged(&self) -> bool {
        Self::is_tagged(self)
    }

    #[inline]
    fn is_short(&self) -> bool {
        Self::is_short(self)
    }

    #[inline]
    fn is_queued(&self) -> bool {
        Self::is_queued(self)
    }

    #[inline]
    fn log(&self) -> Result<&Policy, Error> {
        Self::log(self)
    }

    #[inline]
    fn meters_parts(&self) -> bool {
        Self::meters_parts(self)
    }

    #[inline]
    fn reaches(&self, key: &Key) -> Result<(), Error> {
        Self::reaches(self, key)
    }

    #[inline]
    fn first_branch<'a>(&self, key: &'a Key) -> &'a Key {
        Self::first_branch(self, key)
    }
}

/// Reads a cost as scripts take it.
pub trait CostParts: Sized {
    /// Returns the units as a double, which is exact: what is above the largest whole number that a
    /// double counts by ones is that number.
    fn number(self) -> f64;
}

impl CostParts for Cost {
    #[inline]
    fn number(self) -> f64 {
        Self::number(self)
    }
}

/// Reads the terms of a lease.
pub trait LeaseParts: Sized {
    /// Returns the length of a generation in microseconds.
    fn generation_us(self) -> u64;
}

impl LeaseParts for Lease {
    #[inline]
    fn generation_us(self) -> u64 {
        Self::generation_us(self)
    }
}
