//! Stores and limiters in the process that the tests of several crates share: each includes this file,
//! because the library in `src/` does not depend on Tollgate.
//! Stores on a server are started by that library, and limited ones are in `support/`.

#![allow(dead_code, reason = "no program uses all of them")]

use std::time::Duration;

use tollgate::{
    Decision, Limiter, MemoryStore, Outage, Policy, Quota, Store,
    store::{Check, CheckFuture, Clock, StoreFuture},
    test_util::FaultyStore,
};

pub(crate) const TWO: Policy = Policy::token_bucket("two", Quota::per_minute(2));

/// Creates a store in the process whose clock stands still.
pub(crate) fn still() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build()
}

/// Creates a store in the process that follows the clock of tokio, which the tests pause.
pub(crate) fn tokio_clock_store() -> MemoryStore {
    MemoryStore::builder().clock(Clock::tokio()).build()
}

/// Creates a limiter during an outage of its store.
pub(crate) fn unavailable(outage: Outage) -> Limiter {
    let store = FaultyStore::default();
    store.fail();
    Limiter::builder(store)
        .policies(TWO)
        .on_outage(outage)
        .build()
}

/// Delays the results of another store, on the clock of tokio. It has no reservations.
#[derive(Clone, Debug)]
pub(crate) struct Late<S>(pub(crate) S);

impl<S> Late<S> {
    const DELAY: Duration = Duration::from_millis(5);

    fn delay<T: Send + Unpin + 'static>(result: StoreFuture<T>) -> StoreFuture<T> {
        StoreFuture::pending(async {
            tokio::time::sleep(Self::DELAY).await;
            result.await
        })
    }
}

impl<S: Store> Store for Late<S> {
    fn check(&self, check: Check<'_>) -> CheckFuture {
        Self::delay(self.0.check(check))
    }

    fn refund(&self, check: Check<'_>, decision: Option<&Decision>) -> StoreFuture<()> {
        Self::delay(self.0.refund(check, decision))
    }

    fn reset(&self, check: Check<'_>) -> StoreFuture<()> {
        Self::delay(self.0.reset(check))
    }
}
