//! Policies, stores, services and recorders that the tests share.

use tollgate::{MemoryStore, Policy, Quota, store::Clock};

pub(crate) use tollgate_tests::http::{header, hello, request, request_with};

pub(crate) const TWO: Policy = Policy::token_bucket("two", Quota::per_minute(2));

/// Creates a store in the process whose clock stands still.
pub(crate) fn still() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build()
}
