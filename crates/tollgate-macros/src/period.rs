//! Reads a period: the texts of `tollgate::Quota::parse_period`. A procedural macro cannot depend
//! on that crate.
//! A change of `quota/text/` in the model has to be made here too.

use std::time::Duration;

/// The units, longest first: microseconds and names.
const UNITS: [(u64, &[&str]); 7] = [
    (604_800_000_000, &["w", "week", "weeks"]),
    (86_400_000_000, &["d", "day", "days"]),
    (3_600_000_000, &["h", "hour", "hours", "hr"]),
    (60_000_000, &["m", "min", "mins", "minute", "minutes"]),
    (1_000_000, &["s", "sec", "secs", "second", "seconds"]),
    (1_000, &["ms"]),
    (1, &["us", "µs"]),
];

/// The longest period of a quota, 10 years of 365 days.
const MAX_US: u64 = 10 * 365 * 86_400 * 1_000_000;

const EXPECTED: &str = "us, ms, s, min, hour, day or week";

/// Reads numbers with units, longest unit first, or one unit alone.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim_matches(' ');
    if rest.is_empty() {
        return Err("the text is empty, expected a time such as 2s".to_owned());
    }
    if rest.starts_with(char::is_alphabetic) {
        return unit(rest, u64::MAX).map(Duration::from_micros);
    }
    let (mut sum_us, mut shortest) = (0_u64, u64::MAX);
    while !rest.is_empty() {
        let (number, after) = split(rest, |sign| sign.is_ascii_digit() || sign == '_');
        if !number.starts_with(|sign: char| sign.is_ascii_digit()) {
            return Err(format!("expected a number, got {rest:?} in {text:?}"));
        }
        let (name, after) = split(after, char::is_alphabetic);
        shortest = unit(name, shortest)?;
        let us = number
            .replace('_', "")
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(shortest));
        sum_us = us
            .and_then(|us| us.checked_add(sum_us))
            .ok_or_else(|| format!("{text:?} is longer than 10 years"))?;
        rest = after;
    }
    match sum_us {
        0 => Err("a time of 0 denies at once, which is done without the option".to_owned()),
        1..=MAX_US => Ok(Duration::from_micros(sum_us)),
        _ => Err(format!("{text:?} is longer than 10 years")),
    }
}

/// Splits the first signs of a kind from the rest. Spaces between the two are skipped.
fn split(text: &str, is_part: fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|sign| !is_part(sign)).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start_matches(' '))
}

fn unit(name: &str, longer_us: u64) -> Result<u64, String> {
    match UNITS.iter().find(|(_, names)| names.contains(&name)) {
        Some((us, _)) if *us < longer_us => Ok(*us),
        Some(_) => Err(format!(
            "unit {name} must follow a longer unit, as in 1h30m"
        )),
        None if name.is_empty() => Err(format!("the time has no unit, expected {EXPECTED}")),
        None => Err(format!("unknown unit {name:?}, expected {EXPECTED}")),
    }
}
