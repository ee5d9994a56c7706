//! Exposes what the project's own tests look at: stored bytes, and the call of a script.
//!
//! This module needs the feature `testing`. Semantic versioning does not cover it.

mod held;
mod mixed;
mod permits;
mod script;

pub mod lease;
mod metered;

pub use crate::store::{memory::lockless::Lockless, permits::PermitState};
use crate::{
    Algorithm, Costs, Decision, Key, MemoryStore, Policy, PolicySet,
    model::Ceiling,
    store::{Check, KeyValue, KeyValueStore, ReservationId, Settlement, StoreFuture},
};
pub use metered::{Level, Metered, decision};
pub use mixed::{MixedBatch, MixedSubject, shapes};
pub use permits::{
    concurrency_at, permit_call, permit_key, permit_request, permit_text, read_permits,
};
pub use script::{Script, entries};

/// Holds a state, some permits or a record, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The bytes. Each entry of a log follows its length.
    pub value: Vec<u8>,
    /// The time at which they expire, in milliseconds since the Unix epoch.
    pub expires_ms: u64,
}

/// Lists every algorithm.
pub const ALGORITHMS: [Algorithm; Algorithm::ALL.len()] = Algorithm::ALL;

/// Returns the state of `key` under `policy`, in the form that the script stores.
#[must_use]
pub fn stored(store: &MemoryStore, policy: &Policy, key: &Key) -> Option<Stored> {
    store.stored(policy, key).map(stored_as)
}

/// Returns the permits of a key, in the form that the script stores.
#[must_use]
pub fn stored_permits(store: &MemoryStore, key: &Key, name: &str) -> Option<Stored> {
    store.stored_permits(key, name).map(stored_as)
}

/// Runs `run` with a check that has these costs.
///
/// # Panics
///
/// Panics when the costs do not name the policies of the set.
pub fn with_check<R>(
    policies: &PolicySet,
    key: &Key,
    costs: &Costs,
    run: impl FnOnce(Check<'_>) -> R,
) -> R {
    let charge = costs
        .charge(policies)
        .expect("costs for the policies of the set");
    run(Check::of(policies, key, charge.borrow()))
}

/// Creates a ceiling: what is spent above `units` has to return within `wait_us` microseconds.
#[must_use]
pub fn ceiling(units: u64, wait_us: u64) -> Ceiling {
    Ceiling::units_of(units).within_us(wait_us)
}

/// Runs `run` with a check that has these costs, under a ceiling for each policy.
///
/// # Panics
///
/// Panics when the costs do not name the policies of the set.
pub fn with_check_under<R>(
    policies: &PolicySet,
    key: &Key,
    costs: &Costs,
    ceilings: &[Ceiling],
    run: impl FnOnce(Check<'_>) -> R,
) -> R {
    let charge = costs
        .charge(policies)
        .expect("costs for the policies of the set")
        .under(ceilings.iter().copied());
    run(Check::of(policies, key, charge.borrow()))
}

/// Refunds what `check` spent at `spent_us`, in microseconds since the Unix epoch.
pub fn refund(store: &MemoryStore, check: Check<'_>, spent_us: u64) {
    store.refund_at(check, Some(spent_us), None);
}

/// Refunds what `check` spent at `spent_us`, as [`refund`] does.
pub fn refund_kept<K: KeyValue>(
    store: &KeyValueStore<K>,
    check: Check<'_>,
    spent_us: u64,
) -> StoreFuture<()> {
    store.refund_at(check, Some(spent_us), None)
}

/// Reserves the costs of `check` under an id for some microseconds.
pub fn reserve(
    store: &MemoryStore,
    check: Check<'_>,
    id: &ReservationId,
    life_us: u64,
) -> Decision {
    store.reserve_now(check, id, life_us)
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

/// Returns the record of a reservation in the form that the script stores, with its expiry.
#[must_use]
pub fn record(
    store: &MemoryStore,
    policies: &PolicySet,
    key: &Key,
    id: &ReservationId,
) -> Option<Stored> {
    store.record(policies, key, id).map(stored_as)
}

fn stored_as((value, expires_ms): (Vec<u8>, u64)) -> Stored {
    Stored { value, expires_ms }
}

/// Returns when the store decided, in microseconds since the Unix epoch on its own clock. 0 if the
/// store did not say.
#[must_use]
pub fn at_us(decision: &Decision) -> u64 {
    decision.at_us()
}
