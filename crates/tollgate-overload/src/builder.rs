//! The options of the layer: classes, signals, exemptions, answers.
//! Options of the limit itself stand with it, in `limiter.rs`.

use std::time::Duration;

use http::request::Parts;

use tollgate_tower::{
    MetricLabels, Outcome,
    gate::{GateOptions, IsLayer, Unbuilt},
    rejection::Problem,
};
use tower_layer::Layer;

use crate::{
    class::Class,
    limiter::AdaptiveLimiter,
    request::{Latency, LayerState},
    signal::Signal,
};

/// Builds an [`AdaptiveLayer`](crate::AdaptiveLayer) with options.
///
/// [`AdaptiveLayer::builder`](crate::AdaptiveLayer::builder) creates it.
#[must_use = "a builder does nothing until `build` is called"]
pub struct AdaptiveBuilder<R = Problem> {
    pub(crate) shared: LayerState<R>,
}

impl AdaptiveBuilder {
    pub(crate) fn new(limiter: AdaptiveLimiter) -> Self {
        let gate = GateOptions::new().retry_jitter(Duration::from_secs(1));
        Self {
            shared: LayerState {
                limiter,
                class: None,
                signal: None,
                latency: Latency::Head,
                gate,
            },
        }
    }
}

/// Is no layer before [`build`](AdaptiveBuilder::build): this lets the compiler say so.
impl<S, R> Layer<S> for AdaptiveBuilder<R>
where
    Unbuilt: IsLayer<Self>,
{
    type Service = S;

    fn layer(&self, inner: S) -> S {
        inner
    }
}

impl<R> AdaptiveBuilder<R> {
    /// Sets the class of a request. By default all requests are [critical](Class::CRITICAL).
    ///
    /// A client must not be able to choose its class freely. Choose it by the route, or by
    /// something that an outer layer has checked. The [module](crate) has an example.
    pub fn class(mut self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        self.shared.class = Some(Box::new(class));
        self
    }

    /// Exempts requests: they do not count as in flight, they are never shed, and their latency
    /// does not count.
    ///
    /// Exempt health checks, so that a busy replica is not restarted, and connections that stay
    /// open without work.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.shared.gate = self.shared.gate.exempt(exempt);
        self
    }

    /// Counts and sheds only the requests that this function selects. All others are
    /// [exempt](Self::exempt), and so is a selected one that `exempt` exempts.
    pub fn only(mut self, only: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.shared.gate = self.shared.gate.only(only);
        self
    }

    /// Sets what the outcome of a request means for the limit. The default is [`Signal::of`]. The
    /// closure is not called for requests that panic or are cancelled.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Signal};
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
    pub fn signal(
        mut self,
        signal: impl Fn(&Outcome<'_>) -> Signal + Send + Sync + 'static,
    ) -> Self {
        self.shared.signal = Some(Box::new(signal));
        self
    }

    /// Sets where the latency of a request ends. The default is the [head](Latency::Head) of the
    /// response.
    pub fn latency(mut self, end: Latency) -> Self {
        self.shared.latency = end;
        self
    }

    /// Adds a random time of up to `max` to the wait of each rejection, so that clients do not come
    /// back together. The default is 1 second.
    pub fn retry_jitter(mut self, max: Duration) -> Self {
        self.shared.gate = self.shared.gate.retry_jitter(max);
        self
    }

    /// Sets the metric labels, from a fixed list. The metric `tollgate_rejections_total` carries
    /// them.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.shared.gate = self.shared.gate.metric_labels(labels);
        self
    }

    /// Sets the [responder](tollgate_tower::Respond) that builds rejections. The default is [`Problem`].
    pub fn respond_with<R2>(self, responder: R2) -> AdaptiveBuilder<R2> {
        let LayerState {
            limiter,
            class,
            signal,
            latency,
            gate,
        } = self.shared;
        AdaptiveBuilder {
            shared: LayerState {
                limiter,
                class,
                signal,
                latency,
                gate: gate.respond_with(responder),
            },
        }
    }
}

tollgate_core::debug_fields! { AdaptiveBuilder<R>: limiter = .shared.limiter, .. }
