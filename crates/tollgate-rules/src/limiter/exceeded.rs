//! Counts the units by which counters are above their limits, in the mode `envoy`.
//!
//! A counter of Envoy's service rises above its limit. A check of 0 units is denied only then, and
//! units that are given back are first those above the limit. A counter of a store stays at its
//! limit, so denied requests count here what goes beyond. The count ends with the window. It costs
//! nothing while requests are allowed.

use std::{sync::OnceLock, time::Duration};

use tollgate::{
    Algorithm, Cost, Key, Limiter, LimiterBuilder, Outage, Policy, Quota, limiter::PolicyState,
};

use crate::Unit;

/// The counts of all rules.
pub(super) struct Exceeded {
    builder: LimiterBuilder<()>,
    /// One limiter for each unit. Rules of the native mode never make them.
    limiters: OnceLock<Vec<(Duration, Limiter)>>,
}

impl Exceeded {
    /// Keeps the counts with limiters of this builder.
    pub(super) fn new(builder: LimiterBuilder<()>) -> Self {
        Self {
            builder: builder.on_outage(Outage::Open),
            limiters: OnceLock::new(),
        }
    }

    /// Raises the counter with this key and window further above its limit.
    pub(super) async fn raise(&self, key: &Key, period: Duration, units: u64) {
        let Some(limiter) = self.limiter(period).filter(|_| units > 0) else {
            return;
        };
        let units = Cost::new(units.min(Quota::MAX_AMOUNT));
        if let Err(error) = limiter.check_key(key).cost(units).await {
            tracing::debug!(limiter = limiter.name(), %error, "units above a limit were not counted");
        }
    }

    /// Lowers the counter, at most to its limit.
    pub(super) async fn lower(&self, key: &Key, period: Duration, units: u64) {
        let Some(limiter) = self.limiter(period).filter(|_| units > 0) else {
            return;
        };
        if let Err(error) = limiter.refund(key.clone(), Cost::new(units)).await {
            tracing::debug!(limiter = limiter.name(), %error, "units above a limit were not given back");
        }
    }

    /// Returns the units by which the counter is above its limit. They are 0 while the store is
    /// away.
    pub(super) async fn above(&self, key: &Key, period: Duration) -> u64 {
        let Some(limiter) = self.limiter(period) else {
            return 0;
        };
        let state = limiter.peek(key.clone()).await;
        let spent = |state: PolicyState<'_>| state.spent();
        state.map_or(0, |state| state.states().map(spent).sum())
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
        let quota = Quota::try_new(Quota::MAX_AMOUNT, period).ok()?;
        let policy =
            Policy::try_new(format!("exceeded.{unit}"), Algorithm::FixedWindow, quota).ok()?;
        Some((period, self.builder.clone().policies(policy).build()))
    }
}
