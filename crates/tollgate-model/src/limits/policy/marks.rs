//! Sets the marks of a policy, which no store reads: whether priorities rank it, and whether clients
//! see it.

use super::Policy;

impl Policy {
    /// Leaves this policy out of the ranks of a [`Priority`](crate::Priority): a check of every
    /// priority may spend its whole burst.
    ///
    /// Use it for a quota that belongs to one customer, beside policies that many share. By default
    /// a policy is ranked.
    #[must_use]
    pub const fn unranked(mut self) -> Self {
        self.is_ranked = false;
        self
    }

    /// Returns whether a [`Priority`](crate::Priority) ranks this policy: `true` unless it is
    /// [unranked](Self::unranked).
    #[must_use]
    pub const fn is_ranked(&self) -> bool {
        self.is_ranked
    }

    /// Hides this policy from clients: it is enforced, and no response shows its name or its
    /// numbers.
    ///
    /// Use it for a limit against floods, beside the quotas that clients keep to: an attacker who
    /// reads where the limit is stays below it. A request that the policy denies gets the status of
    /// a denial and `Retry-After`, because an honest client needs the wait. Metrics, logs,
    /// [`Decision`](crate::Decision)s and the tools of operators show the policy as any other.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// const FLOOD: Policy = Policy::token_bucket("flood", Quota::per_second(50)).hidden();
    /// assert!(FLOOD.is_hidden());
    /// assert_eq!(FLOOD.to_string(), "flood=50/s, token_bucket, hidden");
    /// ```
    #[must_use]
    pub const fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
    }

    /// Returns whether responses to clients leave this policy out: `true` when it is
    /// [hidden](Self::hidden).
    #[must_use]
    pub const fn is_hidden(&self) -> bool {
        self.is_hidden
    }
}
