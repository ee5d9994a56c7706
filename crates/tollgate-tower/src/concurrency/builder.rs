use std::{fmt, time::Duration};

use http::request::Parts;
use tollgate::ConcurrencyLimiter;

use crate::{labels::MetricLabels, rejection::Problem};

/// Builds a [`ConcurrencyLayer`](super::ConcurrencyLayer) with options.
///
/// [`ConcurrencyLayer::builder`](super::ConcurrencyLayer::builder) creates it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct ConcurrencyBuilder<K, R = Problem> {
    pub(super) limiter: ConcurrencyLimiter,
    pub(super) key: K,
    pub(super) options: Options,
    pub(super) responder: R,
}

/// Stores the options of a layer.
pub(super) struct Options {
    pub(super) exempt: Option<Exemption>,
    /// Tells whether a request without a permit is answered with 503 instead of 429.
    pub(super) is_unavailable: bool,
    pub(super) has_headers: bool,
    pub(super) retry_jitter: Duration,
    pub(super) labels: MetricLabels,
}

/// Tells whether a request is exempt. Boxed, so that the closure does not appear in the type of the layer.
type Exemption = Box<dyn Fn(&Parts) -> bool + Send + Sync>;

impl<K> ConcurrencyBuilder<K> {
    pub(super) fn new(limiter: ConcurrencyLimiter, key: K) -> Self {
        let options = Options {
            exempt: None,
            is_unavailable: false,
            has_headers: true,
            retry_jitter: Duration::ZERO,
            labels: MetricLabels::default(),
        };
        Self { limiter, key, options, responder: Problem::new() }
    }
}

impl<K, R> ConcurrencyBuilder<K, R> {
    /// Exempts requests: they need no key and no permit.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.options.exempt = Some(Box::new(exempt));
        self
    }

    /// Answers a request without a permit with 503 instead of 429, and with the problem type
    /// `temporary-reduced-capacity`.
    ///
    /// Use it for a limit that all clients share, such as one by [`Global`](crate::key::Global): the client has done
    /// nothing wrong.
    pub fn service_unavailable(mut self) -> Self {
        self.options.is_unavailable = true;
        self
    }

    /// Sets whether responses carry the headers `RateLimit-Policy` and `RateLimit`. The default is `true`.
    ///
    /// The headers have the syntax of [`HeaderFormat::Ietf08`](crate::HeaderFormat::Ietf08), with the unit
    /// `concurrent-requests`. Turn them off around a layer whose header format is another one of the IETF.
    pub fn headers(mut self, has_headers: bool) -> Self {
        self.options.has_headers = has_headers;
        self
    }

    /// Adds a random time of up to `max` to the wait of each rejection, so that clients do not come back together. The
    /// default is 0.
    pub fn retry_jitter(mut self, max: Duration) -> Self {
        self.options.retry_jitter = max;
        self
    }

    /// Sets the metric labels, from a fixed list. The metric `tollgate_rejections_total` carries them.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.options.labels = labels;
        self
    }

    /// Sets the [responder](crate::Respond) that builds rejections. The default is [`Problem`].
    pub fn respond_with<R2>(self, responder: R2) -> ConcurrencyBuilder<K, R2> {
        ConcurrencyBuilder { limiter: self.limiter, key: self.key, options: self.options, responder }
    }
}

impl<K, R> fmt::Debug for ConcurrencyBuilder<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyBuilder").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
