//! Limiters and stores whose decisions never depend on the speed of the machine.

use std::time::Duration;

use tollgate::{
    Cost, Costs, Decision, Key, Limiter, Outage, PolicySet, RedisStore, Store, redis::RedisSource,
};

/// A deadline that a slow machine keeps, and that a test which waits in vain reaches.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Builds a limiter that waits for its store for five minutes and returns an error where the store
/// does not decide. After a standstill, a store takes its server for slower than it is, and refuses
/// what it would not answer within one minute.
#[must_use]
pub fn patient_limiter(store: impl Store + 'static, policies: impl Into<PolicySet>) -> Limiter {
    Limiter::builder(store)
        .policies(policies)
        .deadline(5 * PATIENCE)
        .on_outage(Outage::Closed)
        .build()
}

/// Connects a store that leaves its servers as long to answer a new connection as a slow machine
/// takes. The usual second is over where it stands still for that long.
///
/// # Panics
///
/// When the servers do not decide.
pub async fn connected_store(source: impl Into<RedisSource>) -> RedisStore {
    let builder = RedisStore::builder(source).connect_timeout(PATIENCE);
    builder.connect().await.expect("the servers decide")
}

/// Makes a store as [`connected_store`], which connects at its first call.
///
/// # Panics
///
/// When the source names no server.
#[must_use]
pub fn opened_store(source: impl Into<RedisSource>) -> RedisStore {
    let builder = RedisStore::builder(source).connect_timeout(PATIENCE);
    builder.build().expect("the source names servers")
}

/// Returns how many units are left under the first policy.
///
/// # Panics
///
/// When the store does not decide.
pub async fn remaining(limiter: &Limiter, key: impl Into<Key>) -> u64 {
    remaining_of_each(limiter, key).await[0]
}

/// Checks a key at a cost of one unit.
///
/// # Panics
///
/// When the check fails.
pub async fn decided(limiter: &Limiter, key: impl Into<Key>) -> Decision {
    decided_at(limiter, key, Cost::ONE).await
}

/// Checks a key at this cost.
///
/// # Panics
///
/// When the check fails.
pub async fn decided_at(
    limiter: &Limiter,
    key: impl Into<Key>,
    cost: impl Into<Costs>,
) -> Decision {
    let decision = limiter.check(key).cost(cost).await;
    decision.unwrap_or_else(|error| panic!("no decision: {error}"))
}

/// Returns how many units are left under each policy.
///
/// # Panics
///
/// When the store does not decide.
pub async fn remaining_of_each(limiter: &Limiter, key: impl Into<Key>) -> Vec<u64> {
    let state = limiter.peek(key).await.expect("the store decides");
    state.states().map(|state| state.remaining()).collect()
}
