//! Permits on real servers: the script beside the pure function, replicas that share a limit, lost replies, servers that
//! restart, and processes that are killed or stopped.

mod agreement;
mod faults;
mod processes;
mod store;

use tollgate::{Concurrency, ConcurrencyLimiter, Permit, Policy, Quota, Store};
use tollgate_test_support::patient_limiter;
use tollgate_tests::RedisServer;

/// Returns a replica that waits for its store and returns an error where the store does not answer.
fn replica(store: impl Store, policy: Concurrency) -> ConcurrencyLimiter {
    patient_limiter(store, Policy::token_bucket("any", Quota::per_second(1))).concurrency(policy)
}

/// Takes a permit, if one is free.
async fn take(limiter: &ConcurrencyLimiter, key: &str) -> Option<Permit> {
    limiter.acquire(key).await.expect("the store answers").into_result().ok()
}

/// Returns the permits that each replica holds, as the server stores them.
fn held(server: &RedisServer, key: &str) -> Vec<u32> {
    let reply = server.command(&["GET", key]);
    if reply.is_nil() {
        return Vec::new();
    }
    let holders = reply.bytes()[8..].chunks(40);
    holders.map(|holder| u32::from_le_bytes(holder[8..12].try_into().expect("four bytes"))).collect()
}
