use crate::{
    Cost, Decision, Policy, PolicySet,
    model::{
        algorithm::{PolicyLevel, Refund, State, numbers},
        cost::{Ask, ChargeRef},
        decision::PolicyLevels,
    },
};

/// The state of one policy for one key, and the steps of the pure functions over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Metered(State);

/// The level of one policy for one key.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// The cost fits, or fitted before it was charged.
    pub fits: bool,
    /// The words of the reply of a script.
    pub words: [u64; 4],
}

impl Metered {
    /// Creates the state of a key from which nothing was spent.
    #[must_use]
    pub fn fresh(policy: &Policy) -> Self {
        Self(State::fresh(policy.algorithm()))
    }

    /// Brings the state to `now_us` under `policy`. It was stored under `wrote`. Returns whether it
    /// had to be mended.
    pub fn settle(&mut self, policy: &Policy, wrote: &Policy, now_us: u64) -> bool {
        let settled = self.0.settle(policy, policy.other_pace(wrote), now_us);
        self.0 = settled.state;
        settled.mended
    }

    /// Returns whether a cost fits.
    #[must_use]
    pub fn fits(&self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        self.0.fits(policy, now_us, cost.into())
    }

    /// Spends a cost that fits.
    pub fn charge(&mut self, policy: &Policy, now_us: u64, cost: u64, tag: &[u8]) {
        self.0.charge(policy, now_us, cost, tag);
    }

    /// Charges a cost that need not fit. Returns whether the state was changed.
    pub fn owe(&mut self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        self.0.owe(policy, None, now_us, cost)
    }

    /// Marks a state in debt, as when it is stored.
    pub fn mark_debt(&mut self, policy: &Policy, now_us: u64) {
        self.0.mark_debt(policy, now_us);
    }

    /// Remembers a reservation that was charged.
    pub fn remember(&mut self, now_us: u64) {
        self.0.remember(now_us);
    }

    /// Returns up to `cost` units that were spent at `spent_us`.
    pub fn refund(&mut self, policy: &Policy, now_us: u64, spent_us: u64, cost: u64) {
        self.0.refund(&Refund {
            policy,
            other: None,
            now_us,
            spent_us,
            cost,
            end: None,
        });
    }

    /// Returns the words of the state. `denied` is the cost that did not fit, or 0.
    #[must_use]
    pub fn words(&self, policy: &Policy, now_us: u64, denied: u64) -> [u64; 4] {
        self.0.words(policy, now_us, denied)
    }

    /// Returns the time at which the state equals a fresh one.
    #[must_use]
    pub fn fresh_at(&self, policy: &Policy) -> u64 {
        self.0.fresh_at(policy)
    }
}

impl Level {
    /// Returns the units that remain.
    #[must_use]
    pub fn remaining(&self, policy: &Policy) -> u64 {
        numbers(policy, &self.level(), 0).remaining
    }

    /// Returns the time until a denied cost fits, in microseconds.
    #[must_use]
    pub fn retry_us(&self, policy: &Policy, cost: u64) -> u64 {
        numbers(policy, &self.level(), Ask::from(cost)).retry_us
    }

    fn level(self) -> PolicyLevel {
        PolicyLevel {
            fits: self.fits,
            words: self.words,
        }
    }
}

/// Returns the decision of a check of `cost` units that left these levels.
pub fn decision(policies: &PolicySet, levels: &[Level], cost: u64, now_us: u64) -> Decision {
    let levels = policies
        .iter()
        .zip(levels.iter().map(|level| level.level()));
    Decision::from_levels(
        policies,
        PolicyLevels::collect(levels),
        ChargeRef::from(Cost::new(cost)),
        now_us,
    )
}
