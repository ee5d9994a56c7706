//! The options that all gates have, and the rejection that follows from them.
//! Options of one kind of layer stand with its builder.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http::{Response, request::Parts};
use tollgate_core::Decision;

use crate::{
    headers::ResponseDetails,
    key::{KeyError, KeyErrorKind},
    labels::MetricLabels,
    metrics::{self, DecisionCounters, LabelIndex},
    rejection::{Problem, Reason, Rejection, Respond, add_headers},
};

/// Reads something from the head of a request. Boxed, so that the closure does not appear in the
/// type of the layer.
pub(crate) type FromParts<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

/// Stores the options that all gates have: who is exempt, who answers, how waits are spread, and the
/// labels of the metrics.
///
/// The builder of a layer keeps one, and offers the setters that make sense for the layer. The
/// [gate](crate::gate) has an example.
///
/// ```
/// use http::{Request, Response};
/// use std::time::Duration;
/// use tollgate_tower::{gate::GateOptions, rejection::{Empty, Overload, Reason}};
///
/// let options = GateOptions::new().retry_jitter(Duration::ZERO).respond_with(Empty);
/// let (parts, ()) = Request::new(()).into_parts();
/// let overload = Overload::new(8, 8, Duration::from_millis(1_500));
/// let response: Response<String> = options.reject(Reason::Overloaded(&overload), &parts);
/// assert_eq!(response.status(), 503);
/// assert_eq!(response.headers()["retry-after"], "2");
/// ```
#[must_use = "options do nothing until a gate reads them"]
pub struct GateOptions<R = Problem> {
    pub(crate) responder: R,
    exempt: Option<FromParts<bool>>,
    /// Selects the requests that are limited, apart from those that are exempt.
    only: Option<FromParts<bool>>,
    retry_jitter: Duration,
    pub(crate) labels: MetricLabels,
    has_logged_misconfiguration: AtomicBool,
}

impl GateOptions {
    /// Creates the options of a gate that exempts nobody, answers with a [`Problem`], adds no
    /// jitter, and has no labels.
    pub fn new() -> Self {
        Self {
            responder: Problem::new(),
            exempt: None,
            only: None,
            retry_jitter: Duration::ZERO,
            labels: MetricLabels::default(),
            has_logged_misconfiguration: AtomicBool::new(false),
        }
    }
}

impl Default for GateOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> GateOptions<R> {
    /// Exempts the requests that this function selects.
    pub fn exempt(mut self, exempt: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.exempt = Some(Box::new(exempt));
        self
    }

    /// Exempts all requests but those that this function selects. One that it selects and
    /// [`exempt`](Self::exempt) exempts is exempt.
    pub fn only(mut self, only: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Box::new(only));
        self
    }

    /// Adds a random time of up to `max` to the wait of each rejection, so that clients do not come
    /// back together. The default is 0.
    pub fn retry_jitter(mut self, max: Duration) -> Self {
        self.retry_jitter = max;
        self
    }

    /// Sets the labels of the metrics. The default is none.
    pub fn metric_labels(mut self, labels: MetricLabels) -> Self {
        self.labels = labels;
        self
    }

    /// Sets the responder that builds rejections. The default is [`Problem`].
    pub fn respond_with<R2>(self, responder: R2) -> GateOptions<R2> {
        self.exchange_responder(responder).0
    }

    /// Sets the responder. Returns the one before it, too.
    pub(crate) fn exchange_responder<R2>(self, responder: R2) -> (GateOptions<R2>, R) {
        let Self {
            responder: before,
            exempt,
            only,
            retry_jitter,
            labels,
            has_logged_misconfiguration,
        } = self;
        (
            GateOptions {
                responder,
                exempt,
                only,
                retry_jitter,
                labels,
                has_logged_misconfiguration,
            },
            before,
        )
    }

    /// Returns whether a request is [exempt](Self::exempt): the gate admits it at once, and counts
    /// it nowhere.
    #[inline]
    #[must_use]
    pub fn is_exempt(&self, parts: &Parts) -> bool {
        self.exempt.as_ref().is_some_and(|exempt| exempt(parts))
            || self.only.as_ref().is_some_and(|only| !only(parts))
    }

    /// Returns a random time, which is added to the wait of a client.
    #[inline]
    pub(crate) fn jitter(&self) -> Duration {
        let max = self.retry_jitter;
        if max.is_zero() {
            Duration::ZERO
        } else {
            max.mul_f64(fastrand::f64())
        }
    }

    /// Creates counters for the decisions of one limiter.
    #[must_use]
    pub fn decision_counters(&self) -> DecisionCounters {
        DecisionCounters::new(&self.labels)
    }

    /// Counts a decision on a request in the metric `tollgate_decisions_total`, with the labels of
    /// the gate. Does nothing without the feature `metrics`.
    pub fn count(&self, counters: &DecisionCounters, decision: &Decision, parts: &Parts) {
        let index = LabelIndex::of(parts, &self.labels);
        counters.record_decision(decision, &self.labels, index, false);
    }

    /// Builds the response to a rejected request, and counts the rejection in the metric
    /// `tollgate_rejections_total`.
    ///
    /// The response carries `Retry-After` where waiting helps, unless the responder sets it.
    pub fn reject<B>(&self, reason: Reason<'_>, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        metrics::count_rejection(
            reason.as_str(),
            &self.labels,
            LabelIndex::of(parts, &self.labels),
        );
        let states = reason.states();
        let rejection = Rejection::new(reason, &states, self.jitter(), parts);
        let mut response = self.responder.respond(&rejection);
        let adds_retry_after = self.responder.adds_retry_after(&rejection);
        add_headers(
            &rejection,
            None,
            &ResponseDetails::default(),
            adds_retry_after,
            response.headers_mut(),
        );
        response
    }

    /// Builds the response to a request without a key. The first error of a service that is [set up
    /// wrongly](KeyErrorKind::Misconfigured) is logged, with what follows from it as the message.
    #[cold]
    pub fn reject_without_key<B>(
        &self,
        error: &KeyError,
        consequence: &str,
        parts: &Parts,
    ) -> Response<B>
    where
        R: Respond<B>,
    {
        self.log_misconfiguration(error, consequence);
        self.reject(Reason::of_key_error(error), parts)
    }

    /// Logs that no request has a key, and what follows. The mistake is the same for every request,
    /// so it is logged once.
    pub(crate) fn log_misconfiguration(&self, error: &KeyError, consequence: &str) {
        let is_misconfigured = error.kind() == KeyErrorKind::Misconfigured;
        if is_misconfigured
            && !self
                .has_logged_misconfiguration
                .swap(true, Ordering::Relaxed)
        {
            tracing::error!(hint = %error, "{consequence}");
        }
    }
}

tollgate_core::debug_fields! {
    GateOptions<R>: has_exempt = .exempt.is_some(), has_only = .only.is_some(), retry_jitter,
    labels, ..
}
