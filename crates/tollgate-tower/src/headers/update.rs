//! The change that a decision makes to the headers of a response.

use std::mem;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{
    header_format::HeaderFormat,
    names::{RATELIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, X_REMAINING},
    text::number_value,
};

/// Stores the headers of a decision. They are written when the decision is made, so that nothing else of the
/// decision is stored until the service responds.
pub(crate) struct HeaderUpdate {
    pub(super) headers: Headers,
    /// The time in seconds until a spent policy has more units. It is 0 when units are left.
    pub(super) until_more: u64,
    /// The format whose headers scripts in browsers may read.
    pub(super) exposed: Option<HeaderFormat>,
}

pub(super) enum Headers {
    None,
    /// The default format: one list member for each policy. Every layer appends its own.
    Lists {
        policies: HeaderValue,
        states: HeaderValue,
    },
    /// All other formats.
    Lines {
        lines: Vec<HeaderLine>,
        remaining: u64,
    },
}

pub(super) struct HeaderLine {
    name: HeaderName,
    value: HeaderValue,
    /// Tells whether stacked layers append to the value. Otherwise one layer sets it.
    is_list: bool,
}

impl HeaderLine {
    pub(super) fn list(name: HeaderName, value: HeaderValue) -> Self {
        Self { name, value, is_list: true }
    }

    pub(super) fn single(name: HeaderName, value: HeaderValue) -> Self {
        Self { name, value, is_list: false }
    }
}

impl HeaderUpdate {
    /// Changes nothing.
    pub(crate) const EMPTY: Self = Self { headers: Headers::None, until_more: 0, exposed: None };

    /// Moves the headers into the response of the inner service, which may be limited by another layer. Lists grow. Of
    /// single values, those of the layer with the fewest remaining units stay.
    // Inlined by force: the values move once, from the future into the header map.
    #[inline(always)]
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        if self.until_more > 0 {
            raise_retry_after(self.until_more, headers);
        }
        match mem::replace(&mut self.headers, Headers::None) {
            Headers::None => return,
            Headers::Lists { policies, states } => {
                if headers.is_empty() {
                    // Most responses of bare services have no header yet, and nothing has to be looked up.
                    headers.insert(RATELIMIT_POLICY, policies);
                    headers.insert(RATELIMIT, states);
                } else {
                    append(headers, RATELIMIT_POLICY, policies);
                    append(headers, RATELIMIT, states);
                }
            }
            Headers::Lines { lines, remaining } => {
                let is_lowest = remaining_in(headers).is_none_or(|inner| remaining < inner);
                for HeaderLine { name, value, is_list } in lines {
                    if is_list {
                        append(headers, name, value);
                    } else if is_lowest || !headers.contains_key(&name) {
                        headers.insert(name, value);
                    }
                }
            }
        }
        if let Some(format) = self.exposed {
            expose(format, headers);
        }
    }

    /// Adds the headers to a rejection. A header that the responder has set stays as it is.
    // Inlined by force, as the writer is: the values move once, from where they are built into the header map.
    #[inline(always)]
    pub(crate) fn add_missing_to(self, missing: &mut MissingHeaders<'_>) {
        match self.headers {
            Headers::None => return,
            Headers::Lists { policies, states } => {
                missing.add(RATELIMIT_POLICY, policies);
                missing.add(RATELIMIT, states);
            }
            Headers::Lines { lines, .. } => {
                for HeaderLine { name, value, .. } in lines {
                    missing.add(name, value);
                }
            }
        }
        if let Some(format) = self.exposed {
            expose(format, missing.headers);
        }
    }
}

/// Adds headers to a rejection that the responder has not set.
pub(crate) struct MissingHeaders<'a> {
    headers: &'a mut HeaderMap,
    /// Tells whether the responder has set no header, or the type of the content alone. Most do, and then nothing has to be
    /// looked up.
    is_plain: bool,
}

impl<'a> MissingHeaders<'a> {
    pub(crate) fn of(headers: &'a mut HeaderMap) -> Self {
        let is_plain = headers.keys().all(|name| *name == header::CONTENT_TYPE);
        Self { headers, is_plain }
    }

    /// Adds a header, unless the responder has set it. Each name is added once.
    // Inlined by force: name and value move once, from where they are built into the header map.
    #[inline(always)]
    pub(crate) fn add(&mut self, name: HeaderName, value: HeaderValue) {
        if self.is_plain {
            self.headers.insert(name, value);
        } else {
            self.headers.entry(name).or_insert(value);
        }
    }
}

/// Allows scripts in browsers to read the headers of a format.
#[cold]
fn expose(format: HeaderFormat, headers: &mut HeaderMap) {
    let names = format.joined_names();
    let is_exposed = headers.get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS).iter().any(|line| line == names);
    if !is_exposed {
        headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(names));
    }
}

/// Returns the remaining units that an inner layer reports in a format of single values.
fn remaining_in(headers: &HeaderMap) -> Option<u64> {
    let number = |text: &str| text.trim().parse().ok();
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if let Some(text) = text(X_REMAINING).or_else(|| text(RATELIMIT_REMAINING)) {
        return number(text);
    }
    text(RATELIMIT)?.split(',').find_map(|member| number(member.trim().strip_prefix("remaining=")?))
}

/// Appends members to a list that an inner layer may have begun.
#[inline]
fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    // `HeaderMap::entry` is not used here, because it copies name and value more often.
    let value = if headers.contains_key(&name) { joined(headers, &name, value) } else { value };
    headers.insert(name, value);
}

/// Joins all lines of a list with further members.
#[cold]
fn joined(headers: &HeaderMap, name: &HeaderName, value: HeaderValue) -> HeaderValue {
    let mut joined = Vec::new();
    for line in headers.get_all(name) {
        joined.extend_from_slice(line.as_bytes());
        joined.extend_from_slice(b", ");
    }
    joined.extend_from_slice(value.as_bytes());
    // Valid values joined by valid bytes are valid.
    HeaderValue::try_from(joined).unwrap_or(value)
}

/// Raises the `Retry-After` of an inner layer or of the service to the time at which this layer admits the client.
fn raise_retry_after(until_more: u64, headers: &mut HeaderMap) {
    let Some(inner) = headers.get(header::RETRY_AFTER) else { return };
    let Some(inner) = inner.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else { return };
    if until_more > inner {
        headers.insert(header::RETRY_AFTER, number_value(until_more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_appended_to_all_lines_of_a_list() {
        let mut headers = HeaderMap::new();
        headers.append(RATELIMIT, HeaderValue::from_static(r#""a";r=1"#));
        headers.append(RATELIMIT, HeaderValue::from_static(r#""b";r=2"#));
        append(&mut headers, RATELIMIT, HeaderValue::from_static(r#""c";r=3"#));
        assert_eq!(headers.get_all(RATELIMIT).iter().collect::<Vec<_>>(), [r#""a";r=1, "b";r=2, "c";r=3"#]);
    }

    #[test]
    fn the_remaining_units_are_found_in_every_format_of_single_values() {
        for (name, value, expected) in [
            ("x-ratelimit-remaining", "7", Some(7)),
            ("ratelimit-remaining", " 7 ", Some(7)),
            ("ratelimit", "limit=20, remaining=7, reset=1", Some(7)),
            ("ratelimit", r#""burst";r=7;t=1"#, None),
            ("x-ratelimit-remaining", "many", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            assert_eq!(remaining_in(&headers), expected, "{name}: {value}");
        }
    }
}
