//! Reads from a response how long to delay the next request.
//! How long it is kept is decided in `service.rs`; the header fields are parsed in tollgate-tower.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use tollgate_tower::received::{retry_after, until_full, until_more};

/// Returns the delay before the next request, or `None` when it may go out at once.
pub(crate) fn of(status: StatusCode, headers: &HeaderMap, settings: &Settings) -> Option<Duration> {
    let is_rejected = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    let may_be_rejected =
        is_rejected || settings.delays_on_forbidden && status == StatusCode::FORBIDDEN;
    if may_be_rejected && let Some(delay) = retry_after(headers) {
        return Some(delay);
    }
    // The rate limit headers in a cache belong to an earlier request, perhaps of another client.
    let is_cached = headers.contains_key(header::AGE);
    let until_more = if is_cached { None } else { until_more(headers) };
    if !is_rejected {
        return until_more;
    }
    // The clock of the server may be behind, so that a reset of zero says nothing after a
    // rejection.
    let is_useful = |delay: &Duration| !delay.is_zero();
    let until_full = || if is_cached { None } else { until_full(headers) };
    Some(
        until_more
            .filter(is_useful)
            .or_else(|| until_full().filter(is_useful))
            .unwrap_or(settings.fallback),
    )
}

/// The options of a [`RetryAfterLayer`](super::RetryAfterLayer).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) cap: Duration,
    pub(crate) jitter: f64,
    pub(crate) fallback: Duration,
    pub(crate) delays_on_forbidden: bool,
}

impl Settings {
    pub(crate) const DEFAULT: Self = Self {
        cap: Duration::from_secs(60),
        jitter: 0.1,
        fallback: Duration::from_secs(1),
        delays_on_forbidden: false,
    };
}
