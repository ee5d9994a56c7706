use http::{HeaderMap, HeaderValue, header};

use super::reason::{Reason, Rejection};
use crate::{headers::RATELIMIT_POLICY, limit::Limit};

/// Adds the headers that the responder has not set.
pub(crate) fn add_headers(rejection: &Rejection<'_>, limit: Option<&Limit>, headers: &mut HeaderMap) {
    if let Some(seconds) = rejection.retry_after_seconds() {
        headers.entry(header::RETRY_AFTER).or_insert_with(|| seconds.into());
    }
    match (rejection.reason(), limit) {
        (Reason::Denied(decision), Some(limit)) => {
            headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
            limit.headers.update(decision).add_missing_to(headers);
        }
        (Reason::CostNeverFits(_), Some(limit)) => {
            if let Some(policies) = limit.headers.policies() {
                headers.entry(RATELIMIT_POLICY).or_insert_with(|| policies.clone());
            }
        }
        _ => {}
    }
}
