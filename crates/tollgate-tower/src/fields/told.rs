//! What is added to an answer, beside what other layers and the service say there.

use std::mem;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{HeaderFormat, RATELIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, X_REMAINING};

/// What an answer tells of a decision. It is worked out when that is made, so that nothing else has to be kept until the
/// service has answered.
pub(crate) struct Told {
    pub(super) fields: Fields,
    /// The seconds until more is there, where nothing is left; otherwise 0.
    pub(super) come_back: u64,
    /// Whose fields the scripts of browsers may read.
    pub(super) exposed: Option<HeaderFormat>,
}

pub(super) enum Fields {
    None,
    /// Of each policy: no policy has to be picked, and every layer adds its own.
    Lists {
        policies: &'static HeaderValue,
        states: HeaderValue,
    },
    Lines {
        lines: Vec<Line>,
        remaining: u64,
    },
}

pub(super) struct Line {
    name: HeaderName,
    value: HeaderValue,
    /// Whether layers add their members to it; otherwise one layer alone can speak.
    is_list: bool,
}

impl Line {
    pub(super) fn list(name: HeaderName, value: HeaderValue) -> Self {
        Self { name, value, is_list: true }
    }

    pub(super) fn one(name: HeaderName, value: HeaderValue) -> Self {
        Self { name, value, is_list: false }
    }
}

impl Told {
    /// Nothing at all.
    pub(crate) const NOTHING: Self = Self { fields: Fields::None, come_back: 0, exposed: None };

    /// Moves the fields to the answer of the service inside, which another layer may have limited too: lists grow; of
    /// single values those of the layer with the least left stay.
    #[inline(always)]
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        if self.come_back > 0 {
            postpone(self.come_back, headers);
        }
        match &mut self.fields {
            Fields::None => return,
            Fields::Lists { policies, states } => {
                let states = mem::replace(states, HeaderValue::from_static(""));
                if headers.is_empty() {
                    // A bare answer: there is nothing to look up.
                    headers.insert(RATELIMIT_POLICY, policies.clone());
                    headers.insert(RATELIMIT, states);
                } else {
                    append(headers, RATELIMIT_POLICY, policies.clone());
                    append(headers, RATELIMIT, states);
                }
            }
            Fields::Lines { lines, remaining } => {
                let is_least = remaining_in(headers).is_none_or(|inside| *remaining < inside);
                for Line { name, value, is_list } in lines.drain(..) {
                    if is_list {
                        append(headers, name, value);
                    } else if is_least || !headers.contains_key(&name) {
                        headers.insert(name, value);
                    }
                }
            }
        }
        if let Some(dialect) = self.exposed {
            expose(dialect.joined_names(), headers);
        }
    }

    /// Adds the fields to an answer of the middleware.
    pub(crate) fn fill_in(self, headers: &mut HeaderMap, add: impl Fn(&mut HeaderMap, HeaderName, HeaderValue)) {
        match self.fields {
            Fields::None => return,
            Fields::Lists { policies, states } => {
                add(headers, RATELIMIT_POLICY, policies.clone());
                add(headers, RATELIMIT, states);
            }
            Fields::Lines { lines, .. } => {
                for Line { name, value, .. } in lines {
                    add(headers, name, value);
                }
            }
        }
        if let Some(dialect) = self.exposed {
            expose(dialect.joined_names(), headers);
        }
    }
}

/// Lets the scripts of browsers read the fields.
fn expose(names: &'static str, headers: &mut HeaderMap) {
    let is_told = headers.get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS).iter().any(|line| line == names);
    if !is_told {
        headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(names));
    }
}

/// What a layer further in says is left, in a dialect of single values.
pub(super) fn remaining_in(headers: &HeaderMap) -> Option<u64> {
    let number = |text: &str| text.trim().parse().ok();
    let field = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if let Some(text) = field(X_REMAINING).or_else(|| field(RATELIMIT_REMAINING)) {
        return number(text);
    }
    field(RATELIMIT)?.split(',').find_map(|member| number(member.trim().strip_prefix("remaining=")?))
}

/// Adds members to a list that a layer further in may have begun.
#[inline]
pub(super) fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    // Not by its entry: that carries name and value about before they find their place.
    let value = if headers.contains_key(&name) { joined(headers, &name, value) } else { value };
    headers.insert(name, value);
}

/// All lines of a list, and further members.
#[cold]
fn joined(headers: &HeaderMap, name: &HeaderName, value: HeaderValue) -> HeaderValue {
    let mut joined = Vec::new();
    for line in headers.get_all(name) {
        joined.extend_from_slice(line.as_bytes());
        joined.extend_from_slice(b", ");
    }
    joined.extend_from_slice(value.as_bytes());
    // Valid values, joined by valid bytes.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)).unwrap_or(value)
}

/// Raises the `Retry-After` of a layer further in, or of the service, to the time at which this
/// layer would let the client pass: the strictest wins.
fn postpone(own: u64, headers: &mut HeaderMap) {
    let Some(inside) = headers.get(header::RETRY_AFTER) else { return };
    let Some(inside) = inside.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else { return };
    if own > inside {
        headers.insert(header::RETRY_AFTER, own.into());
    }
}
