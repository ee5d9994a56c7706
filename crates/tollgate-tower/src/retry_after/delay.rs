//! Reads from a response how long to delay the next request.
//! How long it is kept is decided in `service.rs`; parsers of single headers are in
//! `headers/reader.rs`.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};

use super::layer::Settings;
use crate::headers::{
    HeaderFormat, Member, Members, QuotaUnit, RATELIMIT, Reading, lines_of, read, retry_after,
    retry_after_millis,
};

/// Returns the delay before the next request, or `None` when it may go out at once.
pub(crate) fn of(status: StatusCode, headers: &HeaderMap, settings: &Settings) -> Option<Duration> {
    let is_rejected = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    let may_be_rejected =
        is_rejected || settings.delays_on_forbidden && status == StatusCode::FORBIDDEN;
    let millis = || retry_after_millis(headers).map(Duration::from_millis);
    if may_be_rejected && let Some(delay) = millis().or_else(|| retry_after(headers)) {
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

/// Returns the time until there are more units, when a header says that none remain.
fn until_more(headers: &HeaderMap) -> Option<Duration> {
    for (remaining, reset) in [
        ("ratelimit-remaining", "ratelimit-reset"),
        ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ] {
        if let Some(Reading {
            remaining: 0,
            reset,
        }) = read(headers, remaining, reset)
        {
            return reset;
        }
    }
    let lines = lines_of(headers, &RATELIMIT);
    // A header that does not parse is ignored as a whole, and so is one with a member that is not
    // the state of a policy.
    let states = Members::parse(&lines)?;
    if !states.iter().all(Member::is_state) {
        return None;
    }
    let spent = states.iter().filter(|state| state.units_left() == Some(0));
    spent
        .filter_map(Member::seconds_until_more)
        .max()
        .map(Duration::from_secs)
}

/// Returns the reset of the limit of a language-model service that has rejected a request.
///
/// A limit is full later than the next request fits, so the reset is an upper bound of the delay. A
/// response without `Retry-After` names no better one. A response that accepts a request is not
/// asked: its resets would delay the next request for no reason.
fn until_full(headers: &HeaderMap) -> Option<Duration> {
    let groups = [HeaderFormat::OpenAi, HeaderFormat::Anthropic]
        .into_iter()
        .flat_map(HeaderFormat::groups);
    let (mut spent, mut scarce) = (None, None);
    for (unit, [_, remaining, reset]) in groups {
        let Some(Reading {
            remaining,
            reset: Some(reset),
        }) = read(headers, remaining, reset)
        else {
            continue;
        };
        if remaining == 0 {
            spent = spent.max(Some(reset));
        } else if unit != QuotaUnit::REQUESTS {
            // A request takes one request of its limit, but it may need more tokens than are left.
            scarce = scarce.max(Some(reset));
        }
    }
    spent.or(scarce)
}
