//! Remembers which counters are above their limit, in the mode `envoy`.
//!
//! A counter of Envoy's service rises above its limit, and a check of 0 units is denied only then.
//! A counter of a store stays at its limit. So the first denied request of a window marks the
//! counter, and a check of 0 units reads the mark. A mark ends with the window. It costs nothing
//! while requests are allowed, and later denials find it in the memory of denials.
//! When a counter is marked is decided in `settle.rs`. Nothing here runs in the native mode.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tollgate::{Algorithm, Cost, Key, Limiter, Outage, Policy, Quota, Store};

use crate::Unit;

/// The marks of all rules.
pub(super) struct Exceeded {
    store: Arc<dyn Store>,
    name: String,
    deadline: Option<Duration>,
    /// One limiter for each unit. Rules of the native mode never make them.
    limiters: OnceLock<Vec<(Duration, Limiter)>>,
}

impl Exceeded {
    /// Keeps the marks in the store of the limiter with this name and deadline.
    pub(super) fn new(store: Arc<dyn Store>, name: &str, deadline: Option<Duration>) -> Self {
        Self {
            store,
            name: format!("{name}.exceeded"),
            deadline,
            limiters: OnceLock::new(),
        }
    }

    /// Marks the counter with this key and window.
    pub(super) async fn mark(&self, key: &Key, period: Duration) {
        let Some(limiter) = self.limiter(period) else {
            return;
        };
        if let Err(error) = limiter.check_key(key).cost(Cost::new(1)).await {
            tracing::debug!(limiter = limiter.name(), %error, "a counter was not marked as exceeded");
        }
    }

    /// Returns whether the counter is marked. It is not while the store is away.
    pub(super) async fn is_marked(&self, key: &Key, period: Duration) -> bool {
        let Some(limiter) = self.limiter(period) else {
            return false;
        };
        limiter
            .peek(key.clone())
            .await
            .is_ok_and(|state| state.states().any(|state| state.remaining() == 0))
    }

    fn limiter(&self, period: Duration) -> Option<&Limiter> {
        let limiters = self.limiters.get_or_init(|| {
            Unit::ALL
                .into_iter()
                .filter_map(|unit| self.of_unit(unit))
                .collect()
        });
        limiters
            .iter()
            .find(|(other, _)| *other == period)
            .map(|(_, limiter)| limiter)
    }

    fn of_unit(&self, unit: Unit) -> Option<(Duration, Limiter)> {
        let period = unit.duration();
        let quota = Quota::try_new(1, period).ok()?;
        let policy =
            Policy::try_new(format!("exceeded.{unit}"), Algorithm::FixedWindow, quota).ok()?;
        let builder = Limiter::builder(Arc::clone(&self.store))
            .policies(policy)
            .name(self.name.clone());
        let builder = builder.on_outage(Outage::Open);
        let limiter = match self.deadline {
            Some(deadline) => builder.deadline(deadline).build(),
            None => builder.build(),
        };
        Some((period, limiter))
    }
}
