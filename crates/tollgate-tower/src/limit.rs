use std::{fmt, time::Duration};

use tollgate::{CheckFuture, Cost, Decision, Key, Limiter, StoreFuture};

use crate::{headers::HeaderWriter, labels::MetricLabels, metrics::LimitMetrics, options::Options, wait};

/// Stores a limiter together with the headers and the metrics of its decisions.
pub(crate) struct Limit {
    pub(crate) limiter: Limiter,
    pub(crate) headers: HeaderWriter,
    pub(crate) metrics: LimitMetrics,
    has_queue: bool,
}

impl Limit {
    pub(crate) fn new(limiter: Limiter, options: &Options, labels: &MetricLabels) -> Self {
        Self {
            headers: HeaderWriter::new(options.headers, limiter.policies()),
            metrics: LimitMetrics::new(labels),
            has_queue: wait::has_queue(&limiter),
            limiter,
        }
    }

    /// Checks the limiter. Waits for up to `max_wait` where the layer waits instead of denying.
    // Inlined by force: the decision is built where the caller reads it, instead of being copied there.
    #[inline(always)]
    pub(crate) fn check(&self, key: &Key, cost: Cost, max_wait: Option<Duration>) -> CheckFuture {
        check(&self.limiter, self.has_queue, key, cost, max_wait)
    }

    /// Looks whether the cost fits, and charges nothing then. A cost that does not fit is checked, which denies it with the
    /// exact time to retry.
    pub(crate) fn look_or_check(&self, key: &Key, cost: Cost, max_wait: Option<Duration>) -> CheckFuture {
        let look = match self.limiter.check_key(key, Cost::ZERO).into_ready() {
            Ok(Ok(look)) if !has_room(&look, cost) => return self.check(key, cost, max_wait),
            Ok(result) => return StoreFuture::ready(result),
            Err(look) => look,
        };
        let (limiter, has_queue, key) = (self.limiter.clone(), self.has_queue, key.clone());
        StoreFuture::pending(async move {
            let look = look.await?;
            if has_room(&look, cost) {
                return Ok(look);
            }
            check(&limiter, has_queue, &key, cost, max_wait).await
        })
    }
}

#[inline(always)]
fn check(limiter: &Limiter, has_queue: bool, key: &Key, cost: Cost, max_wait: Option<Duration>) -> CheckFuture {
    match max_wait {
        Some(max_wait) => wait::check_or_wait(limiter, key.clone(), cost, max_wait),
        None if has_queue => wait::check_and_queue(limiter, key.clone(), cost),
        None => limiter.check_key(key, cost),
    }
}

/// Returns whether every policy has the units left.
fn has_room(look: &Decision, cost: Cost) -> bool {
    look.states().all(|state| state.remaining() >= cost.units())
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.fmt(f)
    }
}
