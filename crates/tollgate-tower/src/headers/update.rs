//! The change that a decision makes to the headers of a response.

use std::mem;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
};
use tollgate::ErrorKind;

use super::{
    DEGRADED, HeaderLines, RATELIMIT, RATELIMIT_POLICY, RETRY_AFTER_MS, X_AFTER, X_RETRY_AFTER,
    header_format::HeaderFormats,
    stack::{self, retry_after, retry_after_millis},
    text::number_value,
    unit_format::UnitLines,
};

/// Stores the headers of a decision. They are written when the decision is made, so that nothing else of the
/// decision is stored until the service responds.
pub(crate) struct HeaderUpdate {
    pub(super) headers: Headers,
    /// The time in seconds until a spent policy has more units. It is 0 when units are left.
    pub(super) until_more: u64,
    /// The formats whose headers scripts in browsers may read.
    pub(super) exposed: Option<HeaderFormats>,
    /// The reason why the store did not decide, where the layer reports it to clients.
    pub(super) degraded: Option<ErrorKind>,
}

pub(super) enum Headers {
    None,
    /// The default format: one list member for each policy. Every layer appends its own.
    Lists {
        policies: HeaderValue,
        states: HeaderValue,
    },
    /// A format with a group of headers for each unit.
    Units(Vec<UnitLines>),
    /// All other formats.
    Lines(HeaderLines),
    /// The headers of several formats.
    Several(Vec<Self>),
}

impl Headers {
    /// Adds the headers to those that the response has already. `until_more` is the wait of the layer in seconds.
    #[cold]
    fn add_to(self, until_more: u64, headers: &mut HeaderMap) {
        match self {
            Self::None => {}
            Self::Lists { policies, states } => add_lists(policies, states, headers),
            Self::Units(units) => units.into_iter().for_each(|unit| unit.add_to(headers)),
            Self::Lines(lines) => stack::add_lines(lines, until_more, headers),
            Self::Several(several) => several.into_iter().for_each(|own| own.add_to(until_more, headers)),
        }
    }

    /// Adds the headers that the response does not have.
    #[cold]
    fn add_missing_to(self, missing: &mut MissingHeaders<'_>) {
        match self {
            Self::None => {}
            Self::Lists { policies, states } => {
                missing.add(RATELIMIT_POLICY, policies);
                missing.add(RATELIMIT, states);
            }
            Self::Units(units) => {
                for (name, value) in units.into_iter().flat_map(UnitLines::into_lines) {
                    missing.add(name, value);
                }
            }
            Self::Lines(HeaderLines { policies, lines, .. }) => {
                if let Some(policies) = policies {
                    missing.add(RATELIMIT_POLICY, policies);
                }
                for (name, value) in lines {
                    missing.add(name, value);
                }
            }
            Self::Several(several) => several.into_iter().for_each(|own| own.add_missing_to(missing)),
        }
    }
}

impl HeaderUpdate {
    /// Changes nothing.
    pub(crate) const EMPTY: Self = Self { headers: Headers::None, until_more: 0, exposed: None, degraded: None };

    /// Returns whether the decision left no unit of a policy.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.until_more > 0
    }

    /// Moves the headers into the response of the inner service, which may be limited by another layer.
    // Inlined by force: the values move once, from the future into the header map.
    #[inline(always)]
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        let own = mem::replace(&mut self.headers, Headers::None);
        let has_headers = !matches!(own, Headers::None);
        match own {
            Headers::None => {}
            Headers::Lists { policies, states } => add_lists(policies, states, headers),
            others => others.add_to(self.until_more, headers),
        }
        if self.until_more > 0 {
            raise_retry_after(self.until_more, headers);
        }
        if let Some(formats) = self.exposed.filter(|_| has_headers) {
            expose_formats(formats, headers);
        }
        if let Some(kind) = self.degraded {
            mark_degraded(kind, self.exposed.is_some(), headers);
        }
    }

    /// Adds the headers to a rejection. A header that the responder has set stays as it is.
    // Inlined by force, as the writer is: the values move once, from where they are built into the header map.
    #[inline(always)]
    pub(crate) fn add_missing_to(self, missing: &mut MissingHeaders<'_>) {
        let has_headers = !matches!(self.headers, Headers::None);
        match self.headers {
            Headers::None => {}
            Headers::Lists { policies, states } => {
                missing.add(RATELIMIT_POLICY, policies);
                missing.add(RATELIMIT, states);
            }
            others => others.add_missing_to(missing),
        }
        if let Some(formats) = self.exposed.filter(|_| has_headers) {
            expose_formats(formats, missing.headers);
        }
        if let Some(kind) = self.degraded {
            mark_degraded(kind, self.exposed.is_some(), missing.headers);
        }
    }
}

/// Adds the lists of the default format to a response.
///
/// Most responses have none of them. The map hashes each name byte by byte, so each name is hashed once.
// Inlined by force, as `HeaderUpdate::add_to` is.
#[inline(always)]
fn add_lists(policies: HeaderValue, states: HeaderValue, headers: &mut HeaderMap) {
    if headers.is_empty() {
        headers.insert(RATELIMIT_POLICY, policies);
        headers.insert(RATELIMIT, states);
        return;
    }
    let Entry::Vacant(vacant) = headers.entry(RATELIMIT_POLICY) else {
        return stack::add_lists(policies, states, headers);
    };
    vacant.insert(policies);
    let Entry::Vacant(vacant) = headers.entry(RATELIMIT) else {
        return add_lists_to_states(states, headers);
    };
    vacant.insert(states);
}

/// Adds the lists to a response that has `RateLimit`, and `RateLimit-Policy` of this layer alone.
#[cold]
fn add_lists_to_states(states: HeaderValue, headers: &mut HeaderMap) {
    if let Some(policies) = headers.remove(RATELIMIT_POLICY) {
        stack::add_lists(policies, states, headers);
    }
}

/// Adds headers to a rejection that the responder has not set.
pub(crate) struct MissingHeaders<'a> {
    headers: &'a mut HeaderMap,
    /// Is true when the responder has set no header, or the type of the content alone. Most do, and then nothing has to be
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

    /// Reports to the client why the store did not decide.
    pub(super) fn mark_degraded(&mut self, kind: ErrorKind, exposes: bool) {
        mark_degraded(kind, exposes, self.headers);
    }
}

/// Reports to the client why the store did not decide, unless an inner layer has done so.
#[cold]
fn mark_degraded(kind: ErrorKind, exposes: bool, headers: &mut HeaderMap) {
    headers.entry(DEGRADED).or_insert(HeaderValue::from_static(kind.as_str()));
    if exposes {
        expose(DEGRADED, headers);
    }
}

/// Allows scripts in browsers to read the headers of all formats.
#[cold]
fn expose_formats(formats: HeaderFormats, headers: &mut HeaderMap) {
    formats.iter().for_each(|format| expose(format.joined_names(), headers));
}

/// Allows scripts in browsers to read headers.
#[cold]
fn expose(names: &'static str, headers: &mut HeaderMap) {
    let is_exposed = headers.get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS).iter().any(|line| line == names);
    if !is_exposed {
        headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(names));
    }
}

/// Raises the `Retry-After` of an inner layer or of the service to the time at which this layer admits the client. A value
/// that clients cannot parse is replaced.
fn raise_retry_after(until_more: u64, headers: &mut HeaderMap) {
    for name in [header::RETRY_AFTER, X_RETRY_AFTER, X_AFTER] {
        if let Some(inner) = headers.get(&name)
            && retry_after(inner).is_none_or(|inner| inner < until_more)
        {
            headers.insert(name, number_value(until_more));
        }
    }
    let millis = until_more.saturating_mul(1_000);
    if let Some(inner) = headers.get(RETRY_AFTER_MS)
        && retry_after_millis(inner).is_none_or(|inner| inner < millis)
    {
        headers.insert(RETRY_AFTER_MS, number_value(millis));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_a_response_are_the_same_with_and_without_the_short_way() {
        let inner = [
            (RATELIMIT_POLICY, r#""day";q=5;w=86400"#),
            (RATELIMIT, r#""day";r=4;t=9"#),
            (header::CONTENT_TYPE, "text/plain"),
        ];
        for chosen in 0..1 << inner.len() {
            let chosen = inner.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1);
            let headers: HeaderMap =
                chosen.map(|(_, (name, value))| (name.clone(), HeaderValue::from_static(value))).collect();
            let policies = HeaderValue::from_static(r#""burst";q=20;w=1"#);
            let states = HeaderValue::from_static(r#""burst";r=7;t=1"#);
            let (mut found, mut expected) = (headers.clone(), headers);
            add_lists(policies.clone(), states.clone(), &mut found);
            stack::add_lists(policies, states, &mut expected);
            assert_eq!(found, expected);
        }
    }
}
