//! Reads the headers of language-model services, whose reset is the time until a limit is full again.

use std::time::Duration;

use http::HeaderMap;

use crate::headers::{QuotaUnit, UnitFormat};

/// Returns the reset of the limit that has rejected a request.
///
/// A limit is full later than the next request fits, so the reset is an upper bound of the delay. A response without
/// `Retry-After` names no better one. A response that accepts a request is not asked: its resets would delay the next
/// request for no reason.
pub(super) fn reset(headers: &HeaderMap) -> Option<Duration> {
    let formats = [UnitFormat::OpenAi, UnitFormat::Anthropic];
    let readings = formats.into_iter().flat_map(|format| format.units().iter().map(move |names| (format, names)));
    let readings = readings.filter_map(|(format, names)| {
        let reading = names.read(format, headers)?;
        Some((names.unit, reading.remaining, reading.reset?))
    });
    let (mut spent, mut scarce) = (None, None);
    for (unit, remaining, reset) in readings {
        if remaining == 0 {
            spent = spent.max(Some(reset));
        } else if unit != QuotaUnit::REQUESTS {
            // A request takes one request of its limit, but it may need more tokens than are left.
            scarce = scarce.max(Some(reset));
        }
    }
    spent.or(scarce)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;
    use crate::{headers::timestamp, retry_after::field::headers};

    fn seconds(fields: &[(&'static str, &str)]) -> Option<u64> {
        reset(&headers(fields)).map(|reset| reset.as_secs())
    }

    /// The values of the page <https://developers.openai.com/api/docs/guides/rate-limits>.
    const OPEN_AI: [(&str, &str); 6] = [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];

    fn with(name: &str, value: &'static str) -> Vec<(&'static str, &'static str)> {
        OPEN_AI.into_iter().map(|(own, old)| (own, if own == name { value } else { old })).collect()
    }

    #[test]
    fn the_spent_unit_of_openai_names_the_delay() {
        assert_eq!(seconds(&with("x-ratelimit-remaining-requests", "0")), Some(1));
        assert_eq!(seconds(&with("x-ratelimit-remaining-tokens", "0")), Some(360));
        // Requests are left, so the request needed more tokens than are left.
        assert_eq!(seconds(&OPEN_AI), Some(360));
        assert_eq!(seconds(&with("x-ratelimit-remaining-tokens", "-1")), None);
        assert_eq!(seconds(&with("x-ratelimit-reset-tokens", "-6m0s")), None);
        assert_eq!(seconds(&with("x-ratelimit-reset-tokens", "12")), Some(12));
        assert_eq!(seconds(&[]), None);
    }

    #[test]
    fn the_spent_unit_of_anthropic_names_the_delay() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let at = |seconds| timestamp::value(now + Duration::from_secs(seconds)).unwrap().to_str().unwrap().to_owned();
        let (soon, late) = (at(30), at(90));
        let fields = |requests, input, output| {
            [
                ("anthropic-ratelimit-requests-remaining", requests),
                ("anthropic-ratelimit-requests-reset", late.as_str()),
                ("anthropic-ratelimit-input-tokens-remaining", input),
                ("anthropic-ratelimit-input-tokens-reset", soon.as_str()),
                ("anthropic-ratelimit-output-tokens-remaining", output),
                ("anthropic-ratelimit-output-tokens-reset", "2000-01-01T00:00:00Z"),
            ]
        };
        for (fields, expected) in [
            (fields("10", "0", "16000"), 10..=31),
            (fields("0", "0", "16000"), 70..=91),
            (fields("10", "1000", "16000"), 10..=31),
            (fields("10", "80000", "0"), 0..=0),
        ] {
            let found = seconds(&fields).unwrap();
            assert!(expected.contains(&found), "{found}");
        }
    }
}
