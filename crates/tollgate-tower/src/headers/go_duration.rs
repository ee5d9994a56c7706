//! Durations in the form of Go's `time.Duration`: `12ms`, `6m0s`, `1h2m3s`.
//! Which header has this form is decided in `header_format.rs`.

use std::time::Duration;

use http::HeaderValue;

use super::text::{Text, round_up, round_up_to_millis};

/// The longest duration that is read. A longer one is cut to it: about 317 years.
const MAX_DURATION: Duration = Duration::from_secs(10_000_000_000);

/// Writes a duration, rounded up: below one second to milliseconds, and above to seconds.
///
/// A text of whole numbers is read alike by all clients. Some of them stop at a decimal point.
pub(super) fn value(duration: Duration) -> HeaderValue {
    let mut text = Text::new();
    let millis = round_up_to_millis(duration);
    if (1..1_000).contains(&millis) {
        text.number(b"", millis);
        text.push(b"ms");
        return text.finish();
    }
    let seconds = round_up(duration);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        text.number(b"", hours);
        text.push(b"h");
    }
    if hours > 0 || minutes > 0 {
        text.number(b"", minutes);
        text.push(b"m");
    }
    text.number(b"", seconds);
    text.push(b"s");
    text.finish()
}

/// Parses a duration of one or more numbers, each with a unit: `1h2m3.5s`, `250ms`, `80µs`. Returns
/// `None` for any other text, such as one with a sign.
pub(crate) fn parse(mut text: &str) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    if text.is_empty() || text.len() > 64 {
        return None;
    }
    while !text.is_empty() {
        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let (number, rest) = text.split_at(text.find(|letter| !is_number(letter))?);
        let end = rest.find(is_number).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        let seconds = match unit {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        // A number without a digit, or with two points, does not parse.
        let seconds = number.parse::<f64>().ok()? * seconds;
        sum = sum.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(MAX_DURATION));
        text = rest;
    }
    Some(sum.min(MAX_DURATION))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let micros = Duration::from_micros;
        for (duration, expected) in [
            (micros(0), "0s"),
            (micros(1), "1ms"),
            (micros(12_000), "12ms"),
            (micros(12_001), "13ms"),
            (micros(999_000), "999ms"),
            (micros(999_001), "1s"),
            (micros(1_000_000), "1s"),
            (micros(1_000_001), "2s"),
            (Duration::from_secs(59), "59s"),
            (Duration::from_secs(60), "1m0s"),
            (Duration::from_secs(360), "6m0s"),
            (Duration::from_secs(3_600), "1h0m0s"),
            (Duration::from_secs(3_723), "1h2m3s"),
            (Duration::from_secs(86_400), "24h0m0s"),
        ] {
            assert_eq!(value(duration), expected);
        }
    }

    #[test]
    fn durations_are_parsed_as_go_parses_them() {
        let nanos = Duration::from_nanos;
        for (text, expected) in [
            ("0s", nanos(0)),
            ("12ms", nanos(12_000_000)),
            ("6m0s", nanos(360_000_000_000)),
            ("1h2m3s", nanos(3_723_000_000_000)),
            ("7.66s", nanos(7_660_000_000)),
            ("2m59.56s", nanos(179_560_000_000)),
            (".5s", nanos(500_000_000)),
            ("1.s", nanos(1_000_000_000)),
            ("80\u{b5}s", nanos(80_000)),
            ("80\u{3bc}s", nanos(80_000)),
            ("80us1ns", nanos(80_001)),
            ("0.0000000001s", nanos(0)),
            ("1.000000000999999999999999s", nanos(1_000_000_001)),
            (
                "99999999999999999999999999999999999999999999999999h",
                MAX_DURATION,
            ),
            ("9999999999h9999999999h", MAX_DURATION),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "", " ", "0", "12", "s", "ms", "-1s", "+1s", "1 s", " 1s", "1s ", "1d", "1S", "1.2.3s",
            ".s", "1e3s", "0x1s", "1s,2s", "1s2", "\u{661}s", "1\u{b5}", "inf", "NaN",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&"1s".repeat(33)), None);
    }

    proptest! {
        #[test]
        fn a_duration_that_is_written_is_read_as_the_same_rounded_up(micros in 0..20_000_000_000_u64) {
            let duration = Duration::from_micros(micros);
            let read = parse(value(duration).to_str().unwrap()).unwrap();
            let step = if micros <= 999_000 { Duration::from_millis(1) } else { Duration::from_secs(1) };
            prop_assert!(duration <= read && read < duration + step, "{:?} for {:?}", read, duration);
        }

        #[test]
        fn no_text_causes_a_panic(text in "[0-9.hmsunµ+-]{0,40}") {
            prop_assert!(parse(&text).is_none_or(|duration| duration <= MAX_DURATION));
        }
    }
}
