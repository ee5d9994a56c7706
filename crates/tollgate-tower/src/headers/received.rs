//! Reads how long a response of another service asks to wait: for a client that obeys it.
//!
//! `tollgate-outgoing` has layers that obey. The functions here only read: `Retry-After`, the IETF
//! draft, and the header fields of GitHub, OpenAI and Anthropic. A field that does not parse counts
//! as missing.
//!
//! ```
//! use http::HeaderMap;
//! use std::time::Duration;
//! use tollgate_tower::received::{retry_after, until_more};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("ratelimit", r#""burst";r=0;t=7"#.parse().unwrap());
//! assert_eq!(until_more(&headers), Some(Duration::from_secs(7)));
//! assert_eq!(retry_after(&headers), None);
//! ```

// What is read here is parsed in `reader.rs`. Who waits, and for which statuses, is decided by the
// client.

use std::time::Duration;

use http::HeaderMap;

use super::{
    HeaderFormat, QuotaUnit, RATELIMIT,
    reader::{self, Member, Members, Reading, lines_of, read, retry_after_millis},
};

/// Returns the delay of `retry-after-ms` in milliseconds, or of `Retry-After` in seconds or as a date.
///
/// A date in the past is a delay of zero.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let millis = retry_after_millis(headers).map(Duration::from_millis);
    millis.or_else(|| reader::retry_after(headers))
}

/// Returns the time until there are more units, when a header says that none remain.
///
/// It reads `RateLimit-Remaining` and `X-RateLimit-Remaining` with their resets, and then `RateLimit`
/// of the draft. `None` also means that units remain.
#[must_use]
pub fn until_more(headers: &HeaderMap) -> Option<Duration> {
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

/// Returns the longest reset of the spent limits of a language-model service (OpenAI, Anthropic).
/// If no unit is spent, it is the longest reset of the tokens.
///
/// A limit is full later than the next request fits, so the reset is an upper bound of the delay. A
/// rejection without `Retry-After` names no better one. Do not read a response that accepts a
/// request: its resets would delay the next request for no reason.
#[must_use]
pub fn until_full(headers: &HeaderMap) -> Option<Duration> {
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
