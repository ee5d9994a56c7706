//! Decides with Tollgate for many policies, quotas and costs.

use std::time::Duration;

use tollgate::{
    Cost, Key, Limiter, Outage, PolicySet, RedisStore, Store,
    store::{Check, Deadline},
};

use super::Costs;
use crate::{
    keys,
    load::{Answer, Decide},
};

/// Decides with many limiters on one store. The number of the key selects the limiter.
#[derive(Debug)]
pub(crate) struct Many {
    limiters: Vec<Limiter>,
    keys: Vec<String>,
    costs: Costs,
}

impl Many {
    /// Creates limiters that fail where the store does not decide, after a long deadline.
    pub(crate) fn strict(
        store: &RedisStore,
        sets: &[PolicySet],
        keys: usize,
        costs: Costs,
    ) -> Self {
        Self::with(
            store,
            sets,
            keys,
            costs,
            Outage::Closed,
            Duration::from_secs(5),
        )
    }

    /// Creates limiters with the options that a limiter has by default.
    pub(crate) fn usual(store: &RedisStore, sets: &[PolicySet], keys: usize, costs: Costs) -> Self {
        let limiters = sets
            .iter()
            .map(|set| Limiter::new(store.clone(), set.clone()))
            .collect();
        Self {
            limiters,
            keys: keys::first(keys).collect(),
            costs,
        }
    }

    /// Creates limiters with this rule for outages and this deadline.
    pub(crate) fn with(
        store: &RedisStore,
        sets: &[PolicySet],
        keys: usize,
        costs: Costs,
        outage: Outage,
        deadline: Duration,
    ) -> Self {
        let limiter = |set: &PolicySet| {
            Limiter::builder(store.clone())
                .policies(set.clone())
                .on_outage(outage)
                .deadline(deadline)
                .build()
        };
        Self {
            limiters: sets.iter().map(limiter).collect(),
            keys: keys::first(keys).collect(),
            costs,
        }
    }
}

impl Decide for Many {
    async fn decide(&self, key: usize) -> Answer {
        let limiter = &self.limiters[key % self.limiters.len()];
        let cost = Cost::new(self.costs.next());
        match limiter.check(self.keys[key].as_str()).cost(cost).await {
            Ok(decision) => match decision.degraded() {
                None => Answer::by_store(decision.is_allowed()),
                Some(reason) => Answer::WithoutStore(reason),
            },
            Err(error) => Answer::WithoutStore(error.kind()),
        }
    }
}

/// Decides for tenants, each with a quota of its own. A tenant is a set of policies and a key.
#[derive(Debug)]
pub(crate) struct Tenants {
    store: RedisStore,
    sets: Vec<PolicySet>,
    keys: Vec<Key>,
}

impl Tenants {
    pub(crate) fn new(store: &RedisStore, sets: Vec<PolicySet>) -> Self {
        let keys = keys::first(sets.len()).map(Key::from).collect();
        Self {
            store: store.clone(),
            sets,
            keys,
        }
    }
}

impl Decide for Tenants {
    async fn decide(&self, key: usize) -> Answer {
        let check = Check::new(&self.sets[key], &self.keys[key], Cost::ONE);
        let check = check.with_deadline(Deadline::after(Duration::from_secs(5)));
        Answer::by_store(
            self.store
                .check(check)
                .await
                .expect("the server decides")
                .is_allowed(),
        )
    }
}
