//! Permits on real servers: the script beside the pure function, replicas that share a limit, lost
//! replies, servers that restart, and processes that are killed or stopped.

mod agreement;
mod faults;
mod model;
mod processes;
mod store;

use std::time::Duration;

use tollgate::{
    Policy, Quota, Store,
    permits::{Concurrency, ConcurrencyLimiter, Permit},
};
use tollgate_test_support::patient_limiter;
use tollgate_tests::machine;

/// Returns a replica that waits for its store and returns an error where the store does not answer.
fn replica(store: impl Store, policy: Concurrency) -> ConcurrencyLimiter {
    patient_limiter(store, Policy::token_bucket("any", Quota::per_second(1))).concurrency(policy)
}

/// Takes a permit, if one is free.
async fn take(limiter: &ConcurrencyLimiter, key: &str) -> Option<Permit> {
    limiter.acquire(key).await.expect("the store answers").ok()
}

/// Runs a scene of permits, which lapse while the machine stands still for their life.
fn undisturbed(scene: impl AsyncFn()) {
    machine::undisturbed_async(Duration::from_millis(250), 1, scene);
}
