//! Formats with a group of three headers for each unit, as services of language models have them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use tollgate::{Decision, limiter::PolicyState};

use super::{
    Strictness, go_duration,
    stack::{parse_number, retry_after},
    text::{QuotaUnit, QuotaUnits, Text, from_now, more_or_retry_after, number_value, since_epoch},
    timestamp,
};

/// Selects a format with a group of headers for each unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitFormat {
    OpenAi,
    Anthropic,
}

/// Names the headers of one unit.
#[derive(Debug)]
pub(crate) struct UnitNames {
    pub(crate) unit: QuotaUnit,
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
}

/// Stores what a response says about one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitReading {
    pub(crate) remaining: u64,
    /// The time until the limit is full again. `None` when the header is missing or does not parse.
    pub(crate) reset: Option<Duration>,
}

/// Stores the headers of one unit.
pub(super) struct UnitLines {
    names: &'static UnitNames,
    format: UnitFormat,
    limit: HeaderValue,
    remaining: HeaderValue,
    reset: HeaderValue,
    strictness: Strictness,
}

macro_rules! names {
    ($unit:expr, $begin:literal, $limit:literal, $remaining:literal, $reset:literal) => {
        UnitNames {
            unit: $unit,
            limit: concat!($begin, $limit),
            remaining: concat!($begin, $remaining),
            reset: concat!($begin, $reset),
        }
    };
}

static OPEN_AI: [UnitNames; 2] = [
    names!(QuotaUnit::REQUESTS, "x-ratelimit-", "limit-requests", "remaining-requests", "reset-requests"),
    names!(QuotaUnit::TOKENS, "x-ratelimit-", "limit-tokens", "remaining-tokens", "reset-tokens"),
];

static ANTHROPIC: [UnitNames; 4] = [
    names!(QuotaUnit::REQUESTS, "anthropic-ratelimit-requests-", "limit", "remaining", "reset"),
    names!(QuotaUnit::TOKENS, "anthropic-ratelimit-tokens-", "limit", "remaining", "reset"),
    names!(QuotaUnit::INPUT_TOKENS, "anthropic-ratelimit-input-tokens-", "limit", "remaining", "reset"),
    names!(QuotaUnit::OUTPUT_TOKENS, "anthropic-ratelimit-output-tokens-", "limit", "remaining", "reset"),
];

impl UnitFormat {
    /// Returns the names of the headers of all units.
    pub(crate) fn units(self) -> &'static [UnitNames] {
        match self {
            Self::OpenAi => &OPEN_AI,
            Self::Anthropic => &ANTHROPIC,
        }
    }

    /// Returns the headers of a decision. Of several policies that count one unit, the most restrictive one stands for
    /// it.
    pub(super) fn lines(self, decision: &Decision, units: &QuotaUnits, jitter: Duration) -> Vec<UnitLines> {
        let now = match self {
            Self::OpenAi => Duration::ZERO,
            Self::Anthropic => since_epoch(),
        };
        let of_unit = |names: &'static UnitNames| {
            let states = decision.states().filter(|state| units.of(state.policy().name()) == names.unit);
            let state = states.max_by_key(|state| {
                (state.retry_after(), Strictness::new(state.remaining(), state.more_after()), state.reset_after())
            })?;
            self.unit_lines(names, &state, now, jitter)
        };
        self.units().iter().filter_map(of_unit).collect()
    }

    fn unit_lines(
        self,
        names: &'static UnitNames,
        state: &PolicyState<'_>,
        now: Duration,
        jitter: Duration,
    ) -> Option<UnitLines> {
        let remaining = state.remaining();
        // Never before the time of `Retry-After`, which has the same jitter.
        let jitter = if remaining == 0 || state.is_exceeded() { jitter } else { Duration::ZERO };
        let reset = state.reset_after().max(more_or_retry_after(state)).saturating_add(jitter);
        let reset_value = match self {
            Self::OpenAi => {
                let mut text = Text::new();
                go_duration::write(reset, &mut text);
                text.finish()
            }
            Self::Anthropic => timestamp::value(now.saturating_add(reset))?,
        };
        Some(UnitLines {
            names,
            format: self,
            limit: number_value(state.policy().quota().burst()),
            remaining: number_value(remaining),
            reset: reset_value,
            strictness: Strictness::new(remaining, reset),
        })
    }

    /// Parses the time of a reset.
    fn parse_reset(self, text: &str) -> Option<Duration> {
        match self {
            // Azure writes seconds without a unit.
            Self::OpenAi => go_duration::parse(text).or_else(|| parse_number(text).map(from_now)),
            Self::Anthropic => Some(timestamp::parse(text)?.saturating_sub(since_epoch())),
        }
    }
}

impl UnitNames {
    /// Returns what a response says about the unit, or `None` when it lacks the remaining units.
    pub(crate) fn read(&self, format: UnitFormat, headers: &HeaderMap) -> Option<UnitReading> {
        let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
        let remaining = text(self.remaining).and_then(parse_number)?;
        Some(UnitReading { remaining, reset: text(self.reset).and_then(|text| format.parse_reset(text)) })
    }
}

impl UnitLines {
    /// Adds the headers to a response, unless a stricter layer inside has set those of this unit. The three headers of
    /// a unit stay or go as a whole.
    pub(super) fn add_to(self, headers: &mut HeaderMap) {
        let inside = self.names.read(self.format, headers);
        let is_kept = inside.is_some_and(|inside| {
            let wait = inside
                .reset
                .or_else(|| headers.get(header::RETRY_AFTER).and_then(retry_after).map(Duration::from_secs));
            Strictness::new(inside.remaining, wait.unwrap_or_default()) >= self.strictness
        });
        if !is_kept {
            for (name, value) in self.into_lines() {
                headers.insert(name, value);
            }
        }
    }

    /// Returns the names and the values.
    pub(super) fn into_lines(self) -> [(HeaderName, HeaderValue); 3] {
        [
            (HeaderName::from_static(self.names.limit), self.limit),
            (HeaderName::from_static(self.names.remaining), self.remaining),
            (HeaderName::from_static(self.names.reset), self.reset),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::HeaderFormat;

    #[test]
    fn the_names_of_all_units_are_those_of_the_format() {
        for (format, units) in
            [(HeaderFormat::OpenAi, UnitFormat::OpenAi), (HeaderFormat::Anthropic, UnitFormat::Anthropic)]
        {
            let names: Vec<_> = units.units().iter().flat_map(|it| [it.limit, it.remaining, it.reset]).collect();
            assert_eq!(format.own_names().collect::<Vec<_>>(), names);
        }
    }

    #[test]
    fn hostile_values_are_not_read() {
        let names = &OPEN_AI[1];
        let read = |remaining: &'static str, reset: &'static str| {
            let headers = [(names.remaining, remaining), (names.reset, reset)];
            let headers = headers.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            names.read(UnitFormat::OpenAi, &HeaderMap::from_iter(headers))
        };
        let reading = |remaining, reset| Some(UnitReading { remaining, reset });
        assert_eq!(read("7", "6m0s"), reading(7, Some(Duration::from_secs(360))));
        assert_eq!(read(" 7 ", " 12 "), reading(7, Some(Duration::from_secs(12))));
        for reset in ["", "-6m0s", "soon", "1e9", "9999999999999999"] {
            assert_eq!(read("0", reset), reading(0, None), "{reset}");
        }
        // Azure writes -1 where it does not know.
        for remaining in ["", "-1", "+1", "1.5", "many", "9999999999999999"] {
            assert_eq!(read(remaining, "1s"), None, "{remaining}");
        }
    }
}
