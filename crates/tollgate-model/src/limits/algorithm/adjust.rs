//! The steps after a decision: a commit or a refund changes what was charged before.
//! The decision itself is in `decide.rs`.

use super::{debt::MOST_BURSTS, decide::Decide};
use crate::{Policy, quota::Span};

/// The units that come back to a stored state.
///
/// `end` is the end of the places that a request has in a queue or in a debt, or the time at which
/// a token bucket would have been full. Only the last places are taken back: the requests behind
/// keep their turns, and a place between them would be given to two requests. `None` returns the
/// last places.
#[derive(Clone, Copy, Debug)]
pub struct Refund<'a> {
    /// The policy of the decision.
    pub policy: &'a Policy,
    /// The emission interval at which the state was stored, in microseconds, if that is another one.
    pub stored_interval: Option<f64>,
    /// The time now, in microseconds since the Unix epoch.
    pub now_us: u64,
    /// The time at which the units were spent, in microseconds since the Unix epoch.
    pub spent_us: u64,
    /// The most units that come back.
    pub cost: u64,
    /// The end of the places, or the time at which the bucket would have been full: in microseconds
    /// since the Unix epoch, and parts of one.
    pub end: Option<Span>,
}

/// Adjusts a state after its decision: units come back, or more are owed.
///
/// An adjustment comes with the policy of its decision, which others may have changed since. It
/// returns or charges its own units, and corrects nothing: what another quota admitted stays.
/// `stored_interval` is as in [`Decide::advance`].
pub(crate) trait Adjust: Decide {
    /// Returns the policy by which this stored state is adjusted, if it is another one: an open
    /// window ends when its own period is over.
    fn adjusted_under(
        &self,
        _policy: &Policy,
        _stored_interval: f64,
        _now_us: u64,
    ) -> Option<Policy> {
        None
    }

    /// Returns this state at `now_us` as it is adjusted: in debt if it was. The steps below expect
    /// such a state.
    fn adjustable(&mut self, policy: &Policy, now_us: u64) -> Self {
        self.advance(policy, None, now_us).0
    }

    /// Returns whether this state keeps the interval at which it was stored: a bucket that is not
    /// full.
    fn keeps_interval(&self, _now_us: u64) -> bool {
        false
    }

    /// Returns the units that are counted. A debt has a greatest number of them.
    fn spent(&self) -> u64 {
        0
    }

    /// Returns the most units that a policy spends in debt.
    fn most_spent(policy: &Policy) -> u64 {
        policy.quota_ref().burst() * MOST_BURSTS
    }

    /// Charges a cost that need not fit, up to [the most](Self::most_spent). Returns whether the
    /// state is written.
    fn owe(
        &mut self,
        policy: &Policy,
        _stored_interval: Option<f64>,
        now_us: u64,
        cost: u64,
    ) -> bool {
        let cost = cost.min(Self::most_spent(policy).saturating_sub(self.spent()));
        if cost > 0 {
            self.charge(policy, now_us, cost, &[]);
        }
        cost > 0
    }

    /// Returns units. Returns whether the state is written.
    fn refund(&mut self, refund: &Refund<'_>) -> bool;

    /// Remembers a reservation that was charged, for a refund that comes late.
    fn remember(&mut self, _now_us: u64) {}
}
