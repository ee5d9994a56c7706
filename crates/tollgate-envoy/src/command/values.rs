//! Reads the values of settings, in the forms that Envoy's service has.
//! Which settings have them stands in `arguments/`.

use std::{convert::Infallible, path::PathBuf, time::Duration};

/// Names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pairs(pub(crate) Vec<(String, String)>);

/// Reads a path. The empty one means none.
pub(crate) fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(text.into())
}

/// Reads a boolean as Go does.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Reads a share of a whole.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share = text
        .parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3_600.0),
];

/// Reads a duration as Go does: numbers with units, or `0`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let refused =
        || "expected numbers with the units h, m, s, ms, us or ns, as in 1h30m".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest
            .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| refused())?;
        rest = &rest[digits..];
        let unit = rest
            .find(|sign: char| sign.is_ascii_digit() || sign == '.')
            .unwrap_or(rest.len());
        let (_, seconds) = UNITS
            .into_iter()
            .find(|(name, _)| *name == &rest[..unit])
            .ok_or_else(refused)?;
        rest = &rest[unit..];
        sum += number * seconds;
    }
    if text.is_empty() {
        return Err(refused());
    }
    Duration::try_from_secs_f64(sum).map_err(|_| refused())
}

/// Reads `NAME:VALUE,NAME:VALUE`.
pub(crate) fn pairs(text: &str) -> Result<Pairs, String> {
    separated(text, ':')
}

/// Reads `NAME=VALUE,NAME=VALUE`.
pub(crate) fn equal_pairs(text: &str) -> Result<Pairs, String> {
    separated(text, '=')
}

fn separated(text: &str, separator: char) -> Result<Pairs, String> {
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let pairs = parts.map(|part| match part.split_once(separator) {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(format!(
            "expected names and values, as in a{separator}1,b{separator}2"
        )),
    });
    pairs.collect::<Result<_, _>>().map(Pairs)
}

/// Splits `HOST:PORT`. The host may be missing, which is every address.
pub(crate) fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, ms) in [
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("250us", 0),
            ("10ms", 10),
            ("0", 0),
        ] {
            assert_eq!(duration(text).unwrap().as_millis(), ms, "{text}");
        }
        for text in [
            "",
            "10",
            "s",
            "1x",
            "1h30",
            "-1s",
            "1..5s",
            "99999999999999999999999h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pairs_have_a_name_and_a_value() {
        let read = pairs("a:1, b:2:3,").unwrap().0;
        assert_eq!(
            read,
            [
                ("a".to_owned(), "1".to_owned()),
                ("b".to_owned(), "2:3".to_owned())
            ]
        );
        assert!(pairs("").unwrap().0.is_empty());
        assert!(pairs("a").is_err());
    }

    #[test]
    fn a_host_may_be_missing() {
        assert_eq!(host_and_port(":9090"), Some(("0.0.0.0".to_owned(), 9_090)));
        assert_eq!(host_and_port("[::1]:1"), Some(("::1".to_owned(), 1)));
        assert_eq!(host_and_port("9090"), None);
    }
}
