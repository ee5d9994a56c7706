use http::{HeaderMap, HeaderValue, header};

use super::reason::{Reason, Rejection};
use crate::headers::{
    HeaderWriter, MissingHeaders, RATELIMIT_POLICY, RETRY_AFTER_MS, ResponseDetails, number_value, round_up_to_millis,
};

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Adds the headers that the responder has not set. `Retry-After` and `Cache-Control` are added on request.
pub(crate) fn add_headers(
    rejection: &Rejection<'_>,
    writer: Option<&HeaderWriter>,
    details: &ResponseDetails,
    adds_retry_after: bool,
    headers: &mut HeaderMap,
) {
    let mut missing = MissingHeaders::of(headers);
    if adds_retry_after && let Some(seconds) = rejection.retry_after_seconds() {
        missing.add(header::RETRY_AFTER, number_value(seconds));
    }
    match (rejection.reason(), writer) {
        (Reason::Denied(decision), Some(writer)) => {
            if adds_retry_after {
                missing.add(header::CACHE_CONTROL, NO_STORE);
                add_millis(rejection, writer, &mut missing);
            }
            writer.update(decision, rejection.states().iter().copied(), details).add_missing_to(&mut missing);
        }
        (Reason::Blocked | Reason::NoPermit(_), _) if adds_retry_after => missing.add(header::CACHE_CONTROL, NO_STORE),
        (Reason::CostNeverFits(_), Some(writer)) => {
            if let Some(policies) = writer.policies() {
                missing.add(RATELIMIT_POLICY, policies.clone());
            }
        }
        (Reason::Unavailable(error), Some(writer)) => writer.mark_degraded(error.kind(), &mut missing),
        _ => {}
    }
}

/// Adds the wait in milliseconds, where a format has it.
fn add_millis(rejection: &Rejection<'_>, writer: &HeaderWriter, missing: &mut MissingHeaders<'_>) {
    if writer.has_millis()
        && let Some(retry_after) = rejection.retry_after()
    {
        missing.add(RETRY_AFTER_MS, number_value(round_up_to_millis(retry_after).max(1)));
    }
}
