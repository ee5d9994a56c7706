//! Runs the contestants, each in the way in which an application uses it.

pub(crate) mod benchmark;
mod cell;
mod costs;
mod libraries;
pub(crate) mod lua;
mod many;
pub(crate) mod pipeline;
mod plain;
mod postgres;
mod tiers;
pub(crate) mod wrk;

pub(crate) use cell::Cell;
pub(crate) use costs::Costs;
pub(crate) use libraries::{
    ThrottleKit, TowerRateLimitFred, TowerRateLimitRedis, TowerRateLimiter, gcra,
};
pub(crate) use many::{Many, Tenants};
use plain::connect;
pub(crate) use plain::{Call, PerCall, Shared, TwoTrips, pool};
pub(crate) use postgres::{SelectForUpdate, TowerRateLimiterPostgres};
pub(crate) use tiers::Tiers;

use tollgate::{Limiter, Outage, Policy, Store};

use crate::{
    keys,
    load::{Answer, Decide},
};

/// Decides with Tollgate, through its public interface.
#[derive(Debug)]
pub(crate) struct Ours {
    limiter: Limiter,
    keys: Vec<String>,
}

impl Ours {
    pub(crate) fn new(store: impl Store, policy: Policy, keys: usize) -> Self {
        // Closed, with a long deadline: a fast decision that is made without the server must not
        // count.
        let limiter = Limiter::builder(store)
            .policies(policy)
            .on_outage(Outage::Closed)
            .deadline(std::time::Duration::from_secs(5))
            .build();
        Self {
            limiter,
            keys: (0..keys).map(keys::key).collect(),
        }
    }
}

impl Decide for Ours {
    async fn decide(&self, key: usize) -> Answer {
        let decision = self
            .limiter
            .check(self.keys[key].as_str())
            .await
            .expect("the server decides");
        Answer::by_store(decision.is_allowed())
    }
}
