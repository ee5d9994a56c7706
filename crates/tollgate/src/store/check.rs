use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{
    Cost, Key, PolicySet,
    cost::{Charge, ChargeRef, EachCost},
    runtime,
};

/// Describes one check for a [`Store`](crate::Store).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The policies that are checked together.
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
    /// The time limit of the caller. A [`Limiter`](crate::Limiter) sets it for every store that is not
    /// [in process](crate::Store::is_in_process).
    pub deadline: Option<Deadline>,
    /// The cost for each policy, when the costs differ.
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

    #[inline]
    pub(crate) fn charge(&self) -> ChargeRef<'a> {
        ChargeRef { cost: self.cost, each: self.each }
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

/// Marks the time at which the caller of a check stops waiting.
///
/// A deadline keeps its start and its timeout apart. A store can then use the start as the time of sending, and
/// serve all checks with the same timeout from one timer.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Deadline;
///
/// let deadline = Deadline::after(Duration::from_millis(50));
/// assert_eq!(deadline.timeout(), Duration::from_millis(50));
/// assert_eq!(deadline.instant(), Some(deadline.start() + Duration::from_millis(50)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    /// Creates a deadline that ends `timeout` from now.
    ///
    /// Time is tokio's, so a deadline follows a paused clock in tests.
    #[must_use]
    #[inline]
    pub fn after(timeout: Duration) -> Self {
        Self { start: runtime::now(), timeout }
    }

    /// Returns when the check began.
    #[must_use]
    pub fn start(self) -> Instant {
        self.start
    }

    /// Returns the time from the start to the end.
    #[must_use]
    pub fn timeout(self) -> Duration {
        self.timeout
    }

    /// Returns the end. `None` when it lies beyond what an [`Instant`] can hold, so that it never comes.
    #[must_use]
    #[inline]
    pub fn instant(self) -> Option<Instant> {
        self.start.checked_add(self.timeout)
    }
}
