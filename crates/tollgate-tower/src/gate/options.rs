use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http::{Response, request::Parts};

use crate::{
    headers::ResponseDetails,
    key::{KeyError, KeyErrorKind},
    labels::MetricLabels,
    metrics::{self, LabelIndex},
    rejection::{Problem, Reason, Rejection, Respond, add_headers},
};

/// Reads something from the head of a request. Boxed, so that the closure does not appear in the type of the layer.
pub(crate) type FromParts<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

/// Stores the options that all gates have.
pub(crate) struct GateOptions<R> {
    pub(crate) responder: R,
    pub(crate) exempt: Option<FromParts<bool>>,
    pub(crate) retry_jitter: Duration,
    pub(crate) labels: MetricLabels,
    has_logged_misconfiguration: AtomicBool,
}

impl GateOptions<Problem> {
    pub(crate) fn new(retry_jitter: Duration) -> Self {
        Self {
            responder: Problem::new(),
            exempt: None,
            retry_jitter,
            labels: MetricLabels::default(),
            has_logged_misconfiguration: AtomicBool::new(false),
        }
    }
}

impl<R> GateOptions<R> {
    pub(crate) fn respond_with<R2>(self, responder: R2) -> GateOptions<R2> {
        let Self { responder: _, exempt, retry_jitter, labels, has_logged_misconfiguration } = self;
        GateOptions { responder, exempt, retry_jitter, labels, has_logged_misconfiguration }
    }

    #[inline]
    pub(crate) fn is_exempt(&self, parts: &Parts) -> bool {
        self.exempt.as_ref().is_some_and(|exempt| exempt(parts))
    }

    /// Returns a random time, which is added to the wait of a client.
    #[inline]
    pub(crate) fn jitter(&self) -> Duration {
        let max = self.retry_jitter;
        if max.is_zero() { Duration::ZERO } else { max.mul_f64(fastrand::f64()) }
    }

    /// Logs that no request has a key, and what follows. The mistake is the same for every request, so it is logged once.
    pub(crate) fn log_misconfiguration(&self, error: &KeyError, consequence: &str) {
        let is_misconfigured = error.kind() == KeyErrorKind::Misconfigured;
        if is_misconfigured && !self.has_logged_misconfiguration.swap(true, Ordering::Relaxed) {
            tracing::error!(hint = %error, "{consequence}");
        }
    }

    /// Counts a request that is rejected without a decision of a limiter, and builds its response.
    pub(crate) fn reject<B>(&self, reason: Reason<'_>, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        metrics::count_rejection(reason.as_str(), &self.labels, LabelIndex::of(parts, &self.labels));
        let rejection = Rejection::new(reason, &[], self.jitter(), parts);
        let mut response = self.responder.respond(&rejection);
        let adds_retry_after = self.responder.adds_retry_after(&rejection);
        add_headers(&rejection, None, &ResponseDetails::default(), adds_retry_after, response.headers_mut());
        response
    }
}
