use std::time::Duration;

use http::{Response, request::Parts};

use super::{Reason, Rejection, Respond, add_headers};
use crate::{
    headers::ResponseDetails,
    labels::MetricLabels,
    metrics::{self, LabelIndex},
};

/// Counts a request that is rejected without a decision of a limiter, and builds its response.
///
/// A random time of up to `retry_jitter` is added to its wait.
pub(crate) fn reject<B>(
    responder: &impl Respond<B>,
    reason: Reason<'_>,
    retry_jitter: Duration,
    labels: &MetricLabels,
    parts: &Parts,
) -> Response<B> {
    metrics::count_rejection(reason.as_str(), labels, LabelIndex::of(parts, labels));
    let rejection = Rejection::new(reason, &[], jitter(retry_jitter), parts);
    let mut response = responder.respond(&rejection);
    let adds_retry_after = responder.adds_retry_after(&rejection);
    add_headers(&rejection, None, &ResponseDetails::default(), adds_retry_after, response.headers_mut());
    response
}

/// Returns a random time of up to `max`.
pub(crate) fn jitter(max: Duration) -> Duration {
    if max.is_zero() { Duration::ZERO } else { max.mul_f64(fastrand::f64()) }
}
