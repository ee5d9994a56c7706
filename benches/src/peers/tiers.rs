//! Calls tower-rate-tier, which runs the generic cell rate algorithm in a script, over a shared
//! connection.

use std::{sync::Arc, time::Duration};

use tower_rate_tier::{Quota, RateTier, RedisStorage};

use super::connect;
use crate::{
    keys,
    load::{Answer, Decide},
    server::Server,
};

/// Decides with `RateTier::check`, without the middleware of the crate.
pub(crate) struct Tiers {
    limiter: RateTier,
    keys: Vec<String>,
}

const TIER: &str = "pro";

impl Tiers {
    pub(crate) async fn new(server: &Server, keys: usize) -> Self {
        let storage =
            RedisStorage::new(connect(&server.url()).await).timeout(Duration::from_secs(5));
        // The burst equals the count of the quota. It is large enough to admit all requests of a
        // run.
        let quota = Quota::per_hour(100_000_000);
        let limiter = RateTier::builder()
            .tier(TIER, quota)
            .storage(Arc::new(storage))
            .build();
        Self {
            limiter,
            keys: (0..keys).map(keys::key).collect(),
        }
    }
}

impl Decide for Tiers {
    async fn decide(&self, key: usize) -> Answer {
        let decision = self
            .limiter
            .check(&self.keys[key], TIER, 1)
            .await
            .expect("the server decides");
        Answer::by_store(decision.is_ok())
    }
}
