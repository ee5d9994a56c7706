//! Runs the contestants, each in the way in which an application uses it.

mod cell;
mod libraries;
mod plain;
mod postgres;
pub(crate) mod wrk;

pub(crate) use cell::Cell;
pub(crate) use libraries::{
    ThrottleKit, Tiers, TowerRateLimitFred, TowerRateLimitRedis, TowerRateLimiter, gcra,
};
pub(crate) use plain::{Call, PerCall, Pipelined, Shared, TwoTrips, connect};
pub(crate) use postgres::{SelectForUpdate, TowerRateLimiterPostgres};

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tollgate::{Cost, Limiter, Outage, Policy, Store};

use crate::{
    keys,
    load::{Answer, Decide},
};

/// Decides with Tollgate, through its public interface.
#[derive(Debug)]
pub(crate) struct Ours {
    limiter: Limiter,
    /// The costs are drawn from 1 to this number.
    costs: u64,
    drawn: AtomicU64,
}

impl Ours {
    /// Decides with a limiter that fails where the store does not decide, after a long deadline: a
    /// fast decision that is made without the server must not count.
    pub(crate) fn new(store: impl Store, policy: Policy) -> Self {
        let limiter = Limiter::builder(store)
            .policies(policy)
            .on_outage(Outage::Closed)
            .deadline(Duration::from_secs(5));
        Self::of(limiter.build())
    }

    pub(crate) fn of(limiter: Limiter) -> Self {
        Self {
            limiter,
            costs: 1,
            drawn: AtomicU64::new(0),
        }
    }

    /// Draws the costs of requests from so many, in an order that looks random.
    pub(crate) fn with_costs(self, costs: u64) -> Self {
        Self { costs, ..self }
    }
}

impl Decide for Ours {
    async fn decide(&self, key: usize) -> Answer {
        let mut check = self.limiter.check(keys::all()[key].as_str());
        if self.costs > 1 {
            // Multiples of the golden ratio are spread evenly, and neighbours differ.
            let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
            let drawn = u128::from(drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            check = check.cost(Cost::new(
                1 + ((drawn * u128::from(self.costs)) >> 64) as u64,
            ));
        }
        match check.await {
            Ok(decision) => match decision.degraded() {
                None => Answer::by_store(decision.is_allowed()),
                Some(reason) => Answer::WithoutStore(reason),
            },
            Err(error) => Answer::WithoutStore(error.kind()),
        }
    }
}
