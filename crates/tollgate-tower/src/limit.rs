use std::{fmt, time::Duration};

use tollgate::{CheckFuture, Cost, Key, Limiter};

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
            headers: HeaderWriter::new(options.header_format, limiter.policies(), options.exposes_headers),
            metrics: LimitMetrics::new(labels),
            has_queue: wait::has_queue(&limiter),
            limiter,
        }
    }

    /// Checks the limiter. Waits for up to `max_wait` where the layer waits instead of denying.
    // Inlined by force: the decision is built where the caller reads it, instead of being copied there.
    #[inline(always)]
    pub(crate) fn check(&self, key: &Key, cost: Cost, max_wait: Option<Duration>) -> CheckFuture {
        match max_wait {
            Some(max_wait) => wait::check_or_wait(&self.limiter, key.clone(), cost, max_wait),
            None if self.has_queue => wait::check_and_queue(&self.limiter, key.clone(), cost),
            None => self.limiter.check_key(key, cost),
        }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.fmt(f)
    }
}
