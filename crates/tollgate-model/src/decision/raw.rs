//! Makes decisions for stores and limiters, and gives them the parts of one. The face for callers is in
//! `mod.rs` beside.

use std::time::{Duration, Instant};

use super::{
    BLOCKED, Decision, HERE, KeyState, LEASED, Marks, ORIGIN, PolicyLevels, PolicyState, REMEMBERED,
};
use crate::{
    ErrorKind, Policy, PolicySet,
    algorithm::{PolicyLevel, delay_us, end_of, numbers, unspent},
    charge::ChargeRef,
    error::ErrorKindParts,
    micros::micros,
    policy::PolicyParts,
    quota::Span,
};

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

    /// Allows a request without asking any policy.
    fn open(policies: &PolicySet, charge: ChargeRef<'_>, cause: ErrorKind) -> Self;

    /// Denies a request because a policy blocks.
    fn blocked(policies: &PolicySet, charge: ChargeRef<'_>) -> Self;

    /// Names why the store did not make the decision.
    fn degraded_by(self, cause: ErrorKind) -> Self;

    /// Marks a denial that the process remembered. The store did not decide it now.
    fn marked_remembered(self) -> Self;

    /// Marks a decision over units that this process had been granted before.
    fn marked_leased(self) -> Self;

    /// Reads the decision as a look, which charged nothing.
    fn into_key_state(self) -> KeyState;

    /// Returns whether the decision was made without asking the store.
    fn is_in_process(&self) -> bool;

    /// Returns the costs of the check.
    fn charge(&self) -> ChargeRef<'_>;

    /// Returns the level of each policy.
    fn levels(&self) -> &PolicyLevels;

    /// Returns how long until the turn of a denied request can come, if no other request spends and
    /// no ceiling is in its way: in a queue, after all that is in it.
    fn turn_after(&self) -> Duration;

    /// Returns the time from this decision until the token bucket at this place of the set is full, or the
    /// queue empty: in microseconds and parts of one. Of an interval bucket that the request left in
    /// debt, the time until the next fill and the missing units. `None` for every other policy.
    ///
    /// The level of a leased policy counts units that replicas held, which may have come back. So only
    /// the units of the request take time.
    fn ahead_of(&self, at: usize) -> Option<Span>;

    /// Returns what the policy at this place of the set had left right before this decision charged
    /// it. `state` is its state.
    fn remaining_before(&self, at: usize, state: &PolicyState<'_>) -> u64;

    /// Returns when the store decided, in microseconds on its own clock. 0 if it did not say.
    fn at_us(&self) -> u64;

    /// Returns the time of a decision whose store did not say when it decided: the request was sent
    /// at `sent`.
    fn here_us(sent: Instant) -> u64;

    /// Returns how long before `now` the request was sent, in microseconds, to a store that did not say
    /// when it decided.
    fn age_us(&self, now: Instant) -> Option<u64>;
}

impl DecisionParts for Decision {
    #[inline]
    fn from_levels(
        policies: &PolicySet,
        levels: PolicyLevels,
        charge: ChargeRef<'_>,
        at_us: u64,
    ) -> Self {
        Self {
            policies: policies.clone(),
            at_us,
            levels: levels
                .with_costs(charge.each.cloned())
                .with_marks(Marks::default()),
            cost: charge.cost,
        }
    }

    fn open(policies: &PolicySet, charge: ChargeRef<'_>, cause: ErrorKind) -> Self {
        Self::from_levels(policies, PolicyLevels::new(), charge, 0).degraded_by(cause)
    }

    #[cold]
    fn blocked(policies: &PolicySet, charge: ChargeRef<'_>) -> Self {
        let level = |policy: &Policy| PolicyLevel {
            fits: !policy.quota_ref().is_blocked(),
            reading: [0; 4],
        };
        let levels = PolicyLevels::collect(policies.iter().map(|policy| (policy, level(policy))));
        let mut blocked = Self::from_levels(policies, levels, charge, 0);
        blocked.levels.marks.in_process = BLOCKED;
        blocked
    }

    #[inline]
    fn degraded_by(mut self, cause: ErrorKind) -> Self {
        self.levels.marks.degraded = cause.code();
        self
    }

    #[inline]
    fn marked_remembered(mut self) -> Self {
        self.levels.marks.in_process = REMEMBERED;
        self
    }

    #[inline]
    fn marked_leased(mut self) -> Self {
        self.levels.marks.in_process = LEASED;
        self
    }

    fn into_key_state(self) -> KeyState {
        KeyState::new(self)
    }

    #[inline]
    fn is_in_process(&self) -> bool {
        self.levels.marks.in_process > 0
    }

    #[inline]
    fn charge(&self) -> ChargeRef<'_> {
        ChargeRef {
            cost: self.cost,
            each: self.levels.costs(),
        }
    }

    #[inline]
    fn levels(&self) -> &PolicyLevels {
        &self.levels
    }

    fn turn_after(&self) -> Duration {
        let levels = self.levels.iter(&self.policies).enumerate();
        let turns = levels.map(
            |(at, (policy, level))| match policy.algorithm().is_queue() {
                true => numbers(policy, &level, 0).reset_us,
                false => {
                    numbers(
                        policy,
                        &PolicyLevel {
                            fits: false,
                            ..level
                        },
                        self.charge().of(at).units(),
                    )
                    .retry_us
                }
            },
        );
        Duration::from_micros(turns.max().unwrap_or(0))
    }

    fn ahead_of(&self, at: usize) -> Option<Span> {
        let (policy, level) = self.levels.iter(&self.policies).nth(at)?;
        let charge = self.charge();
        let units = charge.of(at).units();
        // Only a check under ceilings goes into debt.
        let is_owed =
            || charge.is_capped() && self.is_allowed() && delay_us(policy, &level, units) > 0;
        let end = end_of(policy, &level, is_owed)?;
        let quota = policy.quota_ref();
        Some(if policy.is_leased() {
            quota.span(units.min(quota.burst()))
        } else {
            end
        })
    }

    fn remaining_before(&self, at: usize, state: &PolicyState<'_>) -> u64 {
        let policy = state.policy();
        let is_in_debt = !policy.algorithm().is_queue() && !state.delay().is_zero();
        match self.levels.iter(&self.policies).nth(at) {
            // Nothing is left in a debt, so the cost alone does not say how far the request went
            // into it.
            Some((_, level)) if is_in_debt => {
                let reading = unspent(policy, &level.reading, state.cost().units());
                numbers(policy, &PolicyLevel { reading, ..level }, 0).remaining
            }
            _ => state.numbers.remaining.saturating_add(state.cost().units()),
        }
    }

    #[inline]
    fn at_us(&self) -> u64 {
        if self.at_us & HERE == 0 {
            self.at_us
        } else {
            0
        }
    }

    fn here_us(sent: Instant) -> u64 {
        HERE | micros(sent.saturating_duration_since(*ORIGIN.get_or_init(|| sent)))
    }

    fn age_us(&self, now: Instant) -> Option<u64> {
        (self.at_us & HERE > 0).then(|| Self::here_us(now).saturating_sub(self.at_us))
    }
}
