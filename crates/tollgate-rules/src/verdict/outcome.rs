//! What charging one descriptor has led to, from a counter, a decision of the core, or the memory
//! of a denial.
//! What the outcomes of several descriptors mean for a request is in `combine.rs`.

use std::time::Duration;

use tollgate::{Decision, limiter::PolicyState};

use crate::{Compat, metrics::Usage};

/// The result of charging one descriptor: whether it is over the limit, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorOutcome {
    pub(super) is_over: bool,
    pub(super) remaining: u64,
    pub(super) reset_after: Duration,
    pub(super) usage: Usage,
    /// Only policies that clients do not see deny.
    pub(super) is_hidden: bool,
}

impl DescriptorOutcome {
    /// Derives the outcome from a counter of a fixed window, which stands at `after` units now that
    /// `hits` were added.
    ///
    /// `now` is the time since the Unix epoch. With 0 hits nothing was added. In native mode such a
    /// check is denied when no unit is left. In the mode `envoy` it is denied only when the counter
    /// is above the limit.
    #[must_use]
    pub fn from_count(
        limit: u64,
        period: Duration,
        after: u64,
        hits: u64,
        now: Duration,
        compat: Compat,
    ) -> Self {
        let tested = if hits == 0 && !compat.is_envoy() {
            after.saturating_add(1)
        } else {
            after
        };
        Self {
            is_over: tested > limit,
            remaining: limit.saturating_sub(after),
            reset_after: reset_after(period, now),
            usage: Usage::new(limit, after, hits, compat),
            is_hidden: false,
        }
    }

    /// Returns the outcome of a check that a remembered denial answers, so that nothing was
    /// charged.
    #[must_use]
    pub fn remembered(period: Duration, hits: u64, now: Duration) -> Self {
        Self::over(period, Usage::remembered(hits), now)
    }

    /// Returns the outcome of a check of which no unit was charged.
    fn over(period: Duration, usage: Usage, now: Duration) -> Self {
        Self {
            is_over: true,
            remaining: 0,
            reset_after: reset_after(period, now),
            usage,
            is_hidden: false,
        }
    }

    /// Derives the outcome from a decision of a [`Limiter`](tollgate::Limiter).
    ///
    /// When the decision has several policies, the outcome describes the one that limits the
    /// request most. Its units that are left are those of a policy that is not
    /// [hidden](tollgate::Policy::hidden), and so is its reset of a request that passes, where there
    /// is one. In native mode, a decision of cost 0 is over the limit when a policy has no
    /// unit left. It then waits for one unit. In the mode `envoy`, such a decision passes, because
    /// it does not show whether the limit was exceeded. A decision that was made without the store
    /// has no policy, and passes unless it is denied.
    #[must_use]
    pub fn from_decision(decision: &Decision, compat: Compat) -> Self {
        let hits = decision.cost().units();
        let is_test = hits == 0 && !compat.is_envoy();
        let is_spent = |state: &PolicyState<'_>| is_test && state.remaining() == 0;
        // The numbers of a state are computed anew wherever states are asked for.
        let spent = is_test.then(|| {
            let spent = decision.states().filter(is_spent);
            spent.max_by_key(PolicyState::next_unit_after)
        });
        let spent = spent.flatten();
        let is_over = decision.is_denied() || spent.is_some();
        let wait = spent.as_ref().map(PolicyState::next_unit_after);
        let Some(state) = spent.or_else(|| decision.strictest()) else {
            let usage = Usage {
                total: hits,
                within: hits,
                ..Usage::default()
            };
            return Self {
                is_over,
                remaining: u64::from(u32::MAX),
                reset_after: Duration::ZERO,
                usage,
                is_hidden: false,
            };
        };
        let limit = state.policy().quota().burst();
        let spent = state.spent();
        let after = if decision.is_denied() {
            spent.saturating_add(hits)
        } else {
            spent
        };
        let mut usage = if decision.is_denied() && after <= limit {
            // The ceiling of a priority denies units that the whole limit still has.
            Usage {
                total: hits,
                over: hits,
                ..Usage::default()
            }
        } else {
            Usage::new(limit, after, hits, compat)
        };
        if decision.is_remembered() {
            usage.over_from_cache = usage.over;
        }
        let shown = match decision.policies().len() {
            1 => Some(state).filter(|state| !state.policy().is_hidden()),
            _ => decision.strictest_shown(),
        };
        let denies = |state: &PolicyState<'_>| state.is_exceeded() || is_spent(state);
        let seen = shown.unwrap_or(state);
        Self {
            is_over,
            remaining: if is_over { 0 } else { seen.remaining() },
            reset_after: wait
                .or(state.retry_after())
                .unwrap_or_else(|| seen.reset_after()),
            usage,
            is_hidden: is_over && !shown.is_some_and(|state| denies(&state)),
        }
    }

    /// Returns the outcome of a descriptor that gave units back: it passes.
    pub(crate) fn refunded(self, hits: u64) -> Self {
        Self {
            is_over: false,
            usage: Usage::refunded(hits),
            ..self
        }
    }

    /// Returns the outcome with another number of units that are left.
    pub(crate) fn with_remaining(self, remaining: u64) -> Self {
        Self { remaining, ..self }
    }

    /// Returns the outcome of units that never fit into policies that clients do not see.
    pub(crate) fn with_hidden(self, is_hidden: bool) -> Self {
        Self { is_hidden, ..self }
    }

    /// Returns the outcome with another answer to whether the limit was exceeded.
    pub(crate) fn with_over(self, is_over: bool) -> Self {
        Self { is_over, ..self }
    }

    /// Returns the outcome of a descriptor that has the units, and was not charged because another
    /// one denies the request.
    pub(crate) fn uncharged(decision: &Decision, hits: u64) -> Self {
        let outcome = Self::from_decision(decision, Compat::Native);
        let Some(state) = decision.strictest() else {
            return outcome;
        };
        let limit = state.policy().quota().burst();
        let after = state.spent().saturating_add(hits);
        Self {
            is_over: false,
            usage: Usage::new(limit, after, hits, Compat::Native),
            ..outcome
        }
    }

    /// Returns the outcome of a rule with 0 requests, which counts nothing.
    #[must_use]
    pub fn blocked(period: Duration, hits: u64, now: Duration) -> Self {
        let usage = Usage {
            total: hits,
            over: hits,
            ..Usage::default()
        };
        Self::over(period, usage, now)
    }

    /// Returns whether the limit was exceeded.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the units that are left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the time until units return: the end of a fixed window.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }

    /// Returns the units within, near and over the limit.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }
}

/// Returns the whole seconds to the end of a window that starts at a multiple of its length.
fn reset_after(period: Duration, now: Duration) -> Duration {
    let seconds = period.as_secs().max(1);
    Duration::from_secs(seconds - now.as_secs() % seconds)
}
