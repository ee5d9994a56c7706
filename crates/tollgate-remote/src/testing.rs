//! Opens the store over bytes to the project's own tests: refunds and commits as of a given time.
//! The module needs the feature `testing`, and semantic versioning does not cover it.

// Only thin functions stand here: nothing of the product may depend on them.

use tollgate_core::{
    Store,
    raw::CheckParts,
    reservation::{ReservationId, Settlement},
    store::{Check, StoreFuture},
};

use crate::{KeyValue, KeyValueStore};

/// Refunds what `check` spent at `spent_us`.
pub fn refund_kept<K: KeyValue>(
    store: &KeyValueStore<K>,
    check: Check<'_>,
    spent_us: u64,
) -> StoreFuture<()> {
    store.refund_at(check, Some(spent_us), None)
}

/// Settles a reservation by the commit of this number.
pub fn commit_kept<K: KeyValue>(
    store: &KeyValueStore<K>,
    check: Check<'_>,
    id: &ReservationId,
    number: u64,
) -> StoreFuture<Settlement> {
    let charge = check.charge().numbered(number);
    store.commit(check.with_charge(&charge), id)
}
