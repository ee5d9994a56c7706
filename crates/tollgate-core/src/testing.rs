//! Opens the store in process to the project's own tests, which compare a script with its pure
//! function.
//!
//! They do that on states and times that no limiter makes: damaged bytes, drawn times of replicas.
//! What the tests make of this stands in `tests/support`. The module needs the feature `testing`, and
//! semantic versioning does not cover it.

// Only names and thin functions stand here: nothing of the product may depend on them. Stores for
// users' tests are in `test_util/`.

pub use tollgate_model::{
    raw::{Charge, ChargeRef},
    testing::*,
};

use tollgate_model::{
    Ceiling, Concurrency,
    algorithm::{PolicyLevel, Refund, State},
    raw::{CeilingParts, CostsParts, DecisionParts, PolicyLevels, PolicyParts},
};

pub use crate::store::{memory::lockless::Lockless, permits::PermitState};

use crate::{
    Cost, Costs, Decision, Error, Key, MemoryStore, Policy, PolicySet,
    store::{Check, PermitRequest, ReservationId, Settlement},
};

/// The bytes of a state, some permits or a record, and the time at which they expire, in
/// milliseconds since the Unix epoch.
pub type Stored = (Vec<u8>, u64);

/// Creates a ceiling: what is spent above `units` has to return within `wait_us` microseconds.
#[must_use]
pub fn ceiling(units: u64, wait_us: u64) -> Ceiling {
    Ceiling::units_of(units).within_us(wait_us)
}

/// Returns the cost for each policy of a set, under a ceiling for each if there are any.
///
/// # Errors
///
/// The costs do not name the policies of the set.
pub fn charge(
    policies: &PolicySet,
    costs: &Costs,
    ceilings: Option<&[Ceiling]>,
) -> Result<Charge, Error> {
    let charge = costs.estimate(policies)?;
    Ok(match ceilings {
        Some(ceilings) => charge.under(ceilings.iter().copied()),
        None => charge,
    })
}

/// Creates a check of this charge.
#[must_use]
pub fn check<'a>(policies: &'a PolicySet, key: &'a Key, charge: &'a Charge) -> Check<'a> {
    Check::of(policies, key, charge.borrow())
}

/// Creates the decision of a check that left these levels: whether the cost fits, and the reading of
/// the reply of a script.
pub fn decided(
    policies: &PolicySet,
    levels: &[(bool, [u64; 4])],
    cost: Cost,
    at_us: u64,
) -> Decision {
    let level = |&(fits, reading): &(bool, [u64; 4])| PolicyLevel { fits, reading };
    let levels = PolicyLevels::collect(policies.iter().zip(levels.iter().map(level)));
    Decision::from_levels(policies, levels, ChargeRef::from(cost), at_us)
}

/// Returns when the store decided, in microseconds since the Unix epoch on its own clock. 0 if the
/// store did not say.
#[must_use]
pub fn at_us(decision: &Decision) -> u64 {
    decision.at_us()
}

/// Returns the time from a decision until the bucket at this place of the set is full, in
/// microseconds and parts of one.
#[must_use]
pub fn ahead_of(decision: &Decision, at: usize) -> Option<(u64, u64)> {
    decision.ahead_of(at)
}

/// Returns the state of `key` under `policy`, in the form that the script stores.
#[must_use]
pub fn stored(store: &MemoryStore, policy: &Policy, key: &Key) -> Option<Stored> {
    store.stored(policy, key)
}

/// Returns the permits of a key, in the form that the script stores.
#[must_use]
pub fn stored_permits(store: &MemoryStore, key: &Key, name: &str) -> Option<Stored> {
    store.stored_permits(key, name)
}

/// Returns the record of a reservation, in the form that the script stores.
#[must_use]
pub fn stored_record(
    store: &MemoryStore,
    policies: &PolicySet,
    key: &Key,
    id: &ReservationId,
) -> Option<Stored> {
    store.record(policies, key, id)
}

/// Refunds what `check` spent at `spent_us`, in microseconds since the Unix epoch.
pub fn refund(store: &MemoryStore, check: Check<'_>, spent_us: u64) {
    store.refund_at(check, Some(spent_us), None);
}

/// Settles a reservation at the costs of `check`, by the commit of this number.
#[must_use]
pub fn commit(
    store: &MemoryStore,
    check: Check<'_>,
    id: &ReservationId,
    number: u64,
) -> Settlement {
    store.commit_now(check, id, number)
}

/// Creates a call that states nothing.
#[must_use]
pub fn permit_request<'a>(policy: &'a Concurrency, key: &'a Key) -> PermitRequest<'a> {
    PermitRequest {
        policy,
        key,
        limit: policy.limit(),
        replica: 0,
        number: 0,
        kept: 0,
        used: 0,
        needed: 0,
        extra: 0,
        waits: false,
        life: policy.life(),
        deadline: None,
    }
}

/// The state of one policy for one key, and the steps of the pure functions over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Metered(State);

impl Metered {
    /// Creates the state of a key from which nothing was spent.
    #[must_use]
    pub fn fresh(policy: &Policy) -> Self {
        Self(State::fresh(policy.algorithm()))
    }

    /// Brings the state to `now_us` under `policy`. It was stored under `wrote`. Returns whether it
    /// had to be mended.
    pub fn advance(&mut self, policy: &Policy, wrote: &Policy, now_us: u64) -> bool {
        let interval = policy.other_interval_us(wrote);
        let advanced = self.0.advance(policy, interval, now_us);
        self.0 = advanced.state;
        advanced.mended
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

    /// Notes a debt, as when the state is stored.
    pub fn note_debt(&mut self, policy: &Policy, now_us: u64) {
        self.0.note_debt(policy, None, now_us);
    }

    /// Remembers a reservation that was charged.
    pub fn remember(&mut self, now_us: u64) {
        self.0.remember(now_us);
    }

    /// Returns up to `cost` units that were spent at `spent_us`.
    pub fn refund(&mut self, policy: &Policy, now_us: u64, spent_us: u64, cost: u64) {
        self.0.refund(&Refund {
            policy,
            stored_interval: None,
            now_us,
            spent_us,
            cost,
            end: None,
        });
    }

    /// Returns the reading of the state. `denied` is the cost that did not fit, or 0.
    #[must_use]
    pub fn reading(&self, policy: &Policy, now_us: u64, denied: u64) -> [u64; 4] {
        self.0.reading(policy, now_us, denied)
    }

    /// Returns the time at which the state equals a fresh one.
    #[must_use]
    pub fn fresh_at(&self, policy: &Policy) -> u64 {
        self.0.fresh_at(policy)
    }
}
