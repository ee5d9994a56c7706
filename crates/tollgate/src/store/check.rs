use std::fmt;

use super::Deadline;
use crate::{
    Ceiling, Cost, Decision, Key, PolicySet,
    model::cost::{Charge, ChargeRef, EachCost},
};

/// Describes one check for a [`Store`](crate::Store).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The policies that are checked together. A [`Limiter`](crate::Limiter) answers a check by itself when one of them
    /// [blocks](crate::Quota::is_blocked).
    pub policies: &'a PolicySet,
    /// The key that is charged. It has the branch and at least as many levels as each policy meters: a
    /// [`Limiter`](crate::Limiter) refuses other keys. A policy charges the [branch](crate::Policy::at_branch) and the
    /// [levels](crate::Policy::at_level) that it meters.
    pub key: &'a Key,
    /// The units to charge on every policy. When the policies have costs of their own, the greatest of them: see
    /// [`cost_of`](Self::cost_of). A cost is at most the burst of its policy.
    pub cost: Cost,
    /// Bytes that a [sliding log](crate::Algorithm::SlidingLog) stores beside the time of each unit. At most 64
    /// bytes; empty by default. Other algorithms ignore the tag.
    pub tag: &'a [u8],
    /// The time limit of the caller of this check, or of the call that it describes. A [`Limiter`](crate::Limiter) sets it for every store that is not
    /// [in process](crate::Store::is_in_process).
    pub deadline: Option<Deadline>,
    /// The cost for each policy, when the costs differ, and the ceilings.
    pub(crate) each: Option<&'a EachCost>,
}

impl<'a> Check<'a> {
    /// Creates a check of `cost` units for `key`, without a tag and without a deadline.
    #[must_use]
    pub fn new(policies: &'a PolicySet, key: &'a Key, cost: Cost) -> Self {
        Self { policies, key, cost, tag: &[], deadline: None, each: None }
    }

    /// Creates a check with the cost for each policy.
    pub(crate) fn of(policies: &'a PolicySet, key: &'a Key, charge: ChargeRef<'a>) -> Self {
        Self { each: charge.each, ..Self::new(policies, key, charge.cost) }
    }

    /// Returns the units to charge on the policy at this place of the set, counted from 0.
    #[must_use]
    #[inline]
    pub fn cost_of(&self, at: usize) -> Cost {
        self.charge().of(at)
    }

    /// Returns the ceiling for the policy at this place of the set, counted from 0. `None` for a check without ceilings:
    /// the burst is the limit.
    ///
    /// A store that knows no ceilings admits callers of [`Limiter::until_ready`](crate::Limiter::until_ready) that then
    /// wait longer than they wished.
    #[must_use]
    pub fn ceiling_of(&self, at: usize) -> Option<Ceiling> {
        self.charge().ceiling(at)
    }

    #[inline]
    pub(crate) fn charge(&self) -> ChargeRef<'a> {
        ChargeRef { cost: self.cost, each: self.each }
    }

    /// Returns the denial of a check under a policy that blocks, for a store that is called without a limiter.
    #[inline]
    pub(crate) fn blocked(&self) -> Option<Decision> {
        self.policies.is_blocked().then(|| Decision::blocked(self.policies, self.charge()))
    }

    /// Returns the same check with another charge.
    pub(crate) fn with_charge(self, charge: &'a Charge) -> Self {
        let charge = charge.borrow();
        Self { cost: charge.cost, each: charge.each, ..self }
    }

    /// Returns the same check with a tag.
    #[must_use]
    pub fn with_tag(self, tag: &'a [u8]) -> Self {
        Self { tag, ..self }
    }

    /// Returns the same check with a deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: Deadline) -> Self {
        Self { deadline: Some(deadline), ..self }
    }
}

impl fmt::Debug for Check<'_> {
    /// Leaves out the key and the tag: both may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("policies", self.policies).field("cost", &self.cost).finish_non_exhaustive()
    }
}
