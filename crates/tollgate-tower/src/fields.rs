//! The `RateLimit-Policy` and `RateLimit` fields, in the syntax of
//! draft-ietf-httpapi-ratelimit-headers, revisions 08 to 11: lists of a name with parameters.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;
use tollgate::{Decision, PolicySet, PolicyState};

pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// A field value in the making; two members fit without an allocation.
struct Value(SmallVec<[u8; 128]>);

/// What is configured: `"burst";q=20;w=1, "day";q=50000;w=86400`.
///
/// A window below a second cannot be expressed. It is told as a second, which understates the
/// quota and never leads a client into a denial.
pub(crate) fn policies(policies: &PolicySet) -> HeaderValue {
    let mut value = Value::new();
    for policy in policies.iter() {
        value.member(policy.name());
        value.parameter(b";q=", policy.quota().amount().into());
        value.parameter(b";w=", seconds(policy.quota().period()));
    }
    value.finish()
}

/// What is left: `"burst";r=7;t=1, "day";r=49120;t=2`. `None` when no policy was asked.
pub(crate) fn states(decision: &Decision) -> Option<HeaderValue> {
    let mut value = Value::new();
    for state in decision.states() {
        value.member(state.policy().name());
        value.parameter(b";r=", state.remaining());
        // Absent when all is there, and so no more to come.
        if let more @ 1.. = seconds(more_after(&state)) {
            value.parameter(b";t=", more);
        }
    }
    (!value.0.is_empty()).then(|| value.finish())
}

/// Until more is there; with nothing left the time to come back.
fn more_after(state: &PolicyState<'_>) -> Duration {
    match state.retry_after() {
        Some(retry_after) if state.remaining() == 0 => retry_after,
        _ => state.more_after(),
    }
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Adds members to a list that a layer further in may have begun.
pub(crate) fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let mut joined = Vec::new();
    for line in headers.get_all(&name) {
        joined.extend_from_slice(line.as_bytes());
        joined.extend_from_slice(b", ");
    }
    if joined.is_empty() {
        headers.insert(name, value);
    } else {
        joined.extend_from_slice(value.as_bytes());
        // Valid values, joined by valid bytes.
        headers.insert(name, HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)).unwrap_or(value));
    }
}

/// Raises the `Retry-After` of a layer further in, or of the service, to the time at which this
/// layer would let the client pass: the strictest wins.
pub(crate) fn postpone(decision: &Decision, headers: &mut HeaderMap) {
    let Some(inside) = headers.get(header::RETRY_AFTER) else { return };
    let Some(inside) = inside.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else { return };
    let own = decision.states().filter(|state| state.remaining() == 0).map(|state| seconds(state.more_after())).max();
    if let Some(own) = own
        && own > inside
    {
        headers.insert(header::RETRY_AFTER, own.into());
    }
}

impl Value {
    fn new() -> Self {
        Self(SmallVec::new())
    }

    /// A policy's name consists of characters that a quoted string holds unescaped.
    fn member(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b", ");
        }
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'"');
    }

    fn parameter(&mut self, name: &[u8], value: u64) {
        self.0.extend_from_slice(name);
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.0.extend_from_slice(&digits[at..]);
    }

    fn finish(self) -> HeaderValue {
        match HeaderValue::from_bytes(&self.0) {
            Ok(value) => value,
            Err(_) => unreachable!("names, digits and separators are valid in a field"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_micros(1)), 1);
        assert_eq!(seconds(Duration::from_secs(1)), 1);
        assert_eq!(seconds(Duration::from_micros(1_000_001)), 2);
    }

    #[test]
    fn numbers_are_written_whole() {
        let text = |number| {
            let mut value = Value::new();
            value.parameter(b"", number);
            value.finish()
        };
        for number in [0, 9, 10, 4_294_967_295, u64::MAX] {
            assert_eq!(text(number), number.to_string());
        }
    }

    #[test]
    fn members_are_added_to_all_lines_that_are_there() {
        let mut headers = HeaderMap::new();
        headers.append(RATELIMIT, HeaderValue::from_static(r#""a";r=1"#));
        headers.append(RATELIMIT, HeaderValue::from_static(r#""b";r=2"#));
        append(&mut headers, RATELIMIT, HeaderValue::from_static(r#""c";r=3"#));
        assert_eq!(headers.get_all(RATELIMIT).iter().collect::<Vec<_>>(), [r#""a";r=1, "b";r=2, "c";r=3"#]);
    }
}
