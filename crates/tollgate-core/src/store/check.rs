//! A check: what a store is asked to decide, by which deadline, and the copy of it that a future
//! keeps.
//! The future of the answer is in `answer.rs`. What a store does with a check is in the file of each
//! store; outages are answered in `limiter/outage/`.

use std::{fmt, sync::Arc};

use tollgate_model::{
    Ceiling,
    raw::{Charge, ChargeRef, EachCost, MAX_EXACT},
};

use super::deadline::{Alarm, Deadline};
use crate::{Cost, Key, PolicySet};

/// Describes one check for a [`Store`](crate::Store).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The policies that are checked together. A [`Limiter`](crate::Limiter) answers a check by
    /// itself when one of them [blocks](crate::Quota::is_blocked).
    pub policies: &'a PolicySet,
    /// The key that is charged. A policy charges the [branch](crate::Policy::at_branch) and the
    /// [levels](crate::Policy::at_level) that it meters. The key has all of them: a
    /// [`Limiter`](crate::Limiter) refuses other keys.
    pub key: &'a Key,
    /// The units to charge on every policy. If the policies have costs of their own, the greatest
    /// cost: see [`cost_of`](Self::cost_of). A cost is at most the burst of its policy.
    pub cost: Cost,
    /// Bytes that a [sliding log](crate::Algorithm::SlidingLog) stores beside the time of each
    /// unit. At most 64 bytes; empty by default. Other algorithms ignore the tag.
    pub tag: &'a [u8],
    /// The time until which the caller waits. A [`Limiter`](crate::Limiter) sets it for every store
    /// that is not [in process](crate::Store::is_in_process), and drops the future of the store
    /// when it has come.
    pub deadline: Option<Deadline>,
    /// The cost for each policy, when the costs differ, and the ceilings.
    pub(crate) each: Option<&'a EachCost>,
}

impl<'a> Check<'a> {
    /// Creates a check of `cost` units for `key`, without a tag and without a deadline.
    #[must_use]
    pub fn new(policies: &'a PolicySet, key: &'a Key, cost: Cost) -> Self {
        Self {
            policies,
            key,
            cost,
            tag: &[],
            deadline: None,
            each: None,
        }
    }

    /// Creates a check with the cost for each policy.
    pub(crate) fn of(policies: &'a PolicySet, key: &'a Key, charge: ChargeRef<'a>) -> Self {
        Self {
            each: charge.each,
            ..Self::new(policies, key, charge.cost)
        }
    }

    /// Returns the units to charge on the policy at this place of the set, counted from 0.
    #[must_use]
    #[inline]
    pub fn cost_of(&self, at: usize) -> Cost {
        self.charge().of(at)
    }

    /// Returns the ceiling for the policy at this place of the set, counted from 0. `None` for a
    /// check without ceilings: the burst is the limit.
    ///
    /// If a store ignores ceilings, callers of
    /// [`CheckBuilder::wait`](crate::limiter::CheckBuilder::wait) may wait longer than they asked
    /// for, and a [priority](crate::Priority) leaves no units to higher ranks.
    #[must_use]
    pub fn ceiling_of(&self, at: usize) -> Option<Ceiling> {
        self.charge().ceiling(at)
    }

    #[inline]
    pub(crate) fn charge(&self) -> ChargeRef<'a> {
        ChargeRef {
            cost: self.cost,
            each: self.each,
        }
    }

    /// Returns the same check with a tag.
    #[must_use]
    #[inline]
    pub fn with_tag(self, tag: &'a [u8]) -> Self {
        Self { tag, ..self }
    }

    /// Returns the same check with a deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: Deadline) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Copies the check, for a future that outlives the call. A store passes the copy to
    /// [`StoreFuture::keeping`](super::StoreFuture::keeping).
    ///
    /// ```
    /// use tollgate::{Cost, Key, Policy, PolicySet, Quota, store::{Check, KeptCheck}};
    ///
    /// fn keep() -> KeptCheck {
    ///     let policies = PolicySet::from(Policy::token_bucket("api", Quota::per_second(10)));
    ///     Check::new(&policies, &Key::new("acme"), Cost::new(3)).keep()
    /// }
    /// assert_eq!(keep().check().cost, Cost::new(3));
    /// ```
    #[must_use]
    pub fn keep(self) -> KeptCheck {
        self.keep_with(()).into()
    }

    /// Copies the check together with what the store has to know of it, in one allocation.
    ///
    /// ```
    /// use std::time::Instant;
    /// use tollgate::{Cost, Key, Policy, PolicySet, Quota, store::Check};
    ///
    /// let policies = PolicySet::from(Policy::token_bucket("api", Quota::per_second(10)));
    /// let check = Check::new(&policies, &Key::new("acme"), Cost::new(3)).keep_with(Instant::now());
    /// // Clones share the allocation: one for the queue, and one for its caller.
    /// let queued = check.clone();
    /// assert!(*queued.data() <= Instant::now());
    /// assert_eq!(queued.check(), check.check());
    /// ```
    #[must_use]
    #[inline]
    pub fn keep_with<T>(self, data: T) -> KeptCheck<T> {
        KeptCheck(Arc::new(Kept {
            policies: self.policies.clone(),
            key: self.key.clone(),
            charge: self.charge().to_owned(),
            tag: self.tag.into(),
            deadline: self.deadline,
            alarm: Alarm::default(),
            data,
        }))
    }
}

/// Reads a check as its charge, and changes it: what stores need beyond its public face.
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
    // Beside the method of the type: nearly every file of this crate reads the charge.
    #[inline]
    fn charge(&self) -> ChargeRef<'a> {
        Check::charge(self)
    }

    fn number(&self) -> u64 {
        self.charge()
            .number()
            .unwrap_or_else(|| fastrand::u64(1..MAX_EXACT))
    }

    #[inline]
    fn with_charge(self, charge: &'a Charge) -> Self {
        let charge = charge.borrow();
        Self {
            cost: charge.cost,
            each: charge.each,
            ..self
        }
    }

    #[inline]
    fn without_cost(self) -> Self {
        Self {
            cost: Cost::ZERO,
            each: None,
            ..self
        }
    }
}

impl PartialEq for Check<'_> {
    /// Compares what the store is asked.
    fn eq(&self, other: &Self) -> bool {
        self.policies == other.policies
            && self.key == other.key
            && self.charge() == other.charge()
            // A comparison of empty slices takes the processor longer than that of all other fields.
            && (self.tag.is_empty() && other.tag.is_empty() || self.tag == other.tag)
            && self.deadline == other.deadline
    }
}

impl Eq for Check<'_> {}

/// Holds a [`Check`] in a future, and what the store keeps with it: see [`Check::keep`] and
/// [`Check::keep_with`]. Clones share both.
///
/// A `KeptCheck` without a type parameter is any of them.
pub struct KeptCheck<T: ?Sized = dyn Send + Sync>(Arc<Kept<T>>);

/// Holds what the clones of a [`KeptCheck`] share.
struct Kept<T: ?Sized> {
    policies: PolicySet,
    key: Key,
    charge: Charge,
    tag: Box<[u8]>,
    deadline: Option<Deadline>,
    /// Wakes who waits for the answer, so that no wait needs an allocation of its own.
    alarm: Alarm,
    data: T,
}

impl<T: ?Sized> KeptCheck<T> {
    /// Returns the check.
    #[must_use]
    #[inline]
    pub fn check(&self) -> Check<'_> {
        let kept = &*self.0;
        Check {
            deadline: kept.deadline,
            ..Check::of(&kept.policies, &kept.key, kept.charge.borrow()).with_tag(&kept.tag)
        }
    }

    /// Returns what is kept with the check.
    #[must_use]
    #[inline]
    pub fn data(&self) -> &T {
        &self.0.data
    }

    /// Returns the alarm of the one who waits for the answer.
    pub(super) fn alarm(&self) -> &Alarm {
        &self.0.alarm
    }

    /// Returns whether this is the only clone.
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T: Send + Sync + 'static> From<KeptCheck<T>> for KeptCheck {
    #[inline]
    fn from(check: KeptCheck<T>) -> Self {
        KeptCheck(check.0)
    }
}

impl<T: ?Sized> Clone for KeptCheck<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> fmt::Debug for KeptCheck<T> {
    /// Leaves out the key and the tag: both may identify a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.check().fmt(f)
    }
}

// Leaves out the key and the tag: both may identify a person.
crate::debug_fields! { Check<'a>: policies, cost, .. }
