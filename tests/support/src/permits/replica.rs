//! A replica that shares permits with others.

use std::time::Duration;

use tollgate::{
    Limiter, Outage, Policy, Quota, Store,
    permits::{Concurrency, ConcurrencyLimiter, Permit},
};

/// Returns a limiter that returns an error where the store does not answer within the deadline.
#[must_use]
pub fn closed_permits(
    store: impl Store + 'static,
    policy: Concurrency,
    deadline: Duration,
) -> ConcurrencyLimiter {
    let any = Policy::token_bucket("any", Quota::per_second(1));
    Limiter::builder(store)
        .policies(any)
        .on_outage(Outage::Closed)
        .deadline(deadline)
        .build()
        .concurrency(policy)
}

/// Takes a permit of `acme`, if the store answers and one is free.
pub async fn take_permit(limiter: &ConcurrencyLimiter) -> Option<Permit> {
    limiter.acquire("acme").await.ok()?.ok()
}
