use std::{fmt, time::Duration};

use http::request::Parts;

use super::{class::Class, limiter::AdaptiveLimiter, shared::Shared, signal::Signal};
use crate::{charge::Outcome, gate::GateOptions, labels::MetricLabels, rejection::Problem};

/// Builds an [`AdaptiveLayer`](super::AdaptiveLayer) with options.
///
/// [`AdaptiveLayer::builder`](super::AdaptiveLayer::builder) creates it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct AdaptiveBuilder<R = Problem> {
    pub(super) shared: Shared<R>,
}

/// Selects the end of the latency of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Latency {
    /// The latency ends with the head of the response. The default.
    ///
    /// A client that reads slowly does not make the service look slow.
    #[default]
    Head,
    /// The latency ends with the body of the response.
    ///
    /// Use it when the service works while it sends, and its clients read at once: a proxy of uploads, for example. A body
    /// that fails does not count.
    Body,
}

impl AdaptiveBuilder {
    pub(super) fn new(limiter: AdaptiveLimiter) -> Self {
        let gate = GateOptions::new(Duration::from_secs(1));
        Self { shared: Shared { limiter, class: None, signal: None, latency: Latency::Head, gate } }
    }
}

impl<R> AdaptiveBuilder<R> {
    /// Sets the class of a request. By default all requests are [critical](Class::CRITICAL).
    ///
    /// A client must not be able to choose its class freely. Read it from the route, or from something that an outer
    /// layer has checked.
    pub fn class(mut self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        self.shared.class = Some(Box::new(class));
        self
    }

    /// Exempts requests: they are not counted as in flight, are never shed, and do not count as samples.
    ///
    /// Exempt health checks, so that a busy replica is not restarted, and connections that stay open without work.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.shared.gate.exempt = Some(Box::new(exempt));
        self
    }

    /// Sets the signal that the outcome of a request gives. The default is [`Signal::of`].
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate_tower::adaptive::{AdaptiveLayer, AdaptiveLimiter, Signal};
    ///
    /// // Every 5xx counts as an overload.
    /// let layer = AdaptiveLayer::builder(AdaptiveLimiter::default())
    ///     .signal(|outcome| match outcome.status() {
    ///         Some(status) if status.is_server_error() => Signal::Overload,
    ///         _ => Signal::of(outcome),
    ///     })
    ///     .build();
    /// # let _ = layer;
    /// ```
    pub fn signal(mut self, signal: impl Fn(&Outcome<'_>) -> Signal + Send + Sync + 'static) -> Self {
        self.shared.signal = Some(Box::new(signal));
        self
    }

    /// Sets the end of the latency of a request. The default is the [head](Latency::Head) of the response.
    pub fn latency(mut self, end: Latency) -> Self {
        self.shared.latency = end;
        self
    }

    /// Adds a random time of up to `max` to the wait of each rejection, so that clients do not come back together. The
    /// default is 1 second.
    pub fn retry_jitter(mut self, max: Duration) -> Self {
        self.shared.gate.retry_jitter = max;
        self
    }

    /// Sets the metric labels, from a fixed list. The metric `tollgate_rejections_total` carries them.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.shared.gate.labels = labels;
        self
    }

    /// Sets the [responder](crate::Respond) that builds rejections. The default is [`Problem`].
    pub fn respond_with<R2>(self, responder: R2) -> AdaptiveBuilder<R2> {
        let Shared { limiter, class, signal, latency, gate } = self.shared;
        AdaptiveBuilder { shared: Shared { limiter, class, signal, latency, gate: gate.respond_with(responder) } }
    }
}

impl<R> fmt::Debug for AdaptiveBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveBuilder").field("limiter", &self.shared.limiter).finish_non_exhaustive()
    }
}
