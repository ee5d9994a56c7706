//! Writes the headers of a decision, and adds them to a response.

use std::{mem, sync::Arc};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
};
use tollgate::{Decision, ErrorKind, Policy, PolicySet, limiter::PolicyState};

use super::{
    DEGRADED, HeaderLines, RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET,
    RETRY_AFTER_MS, ResponseDetails, X_AFTER, X_BURST_CAPACITY, X_LIMIT, X_REMAINING, X_REPLENISH_RATE,
    X_REQUESTED_TOKENS, X_RESET, X_RESOURCE, X_RETRY_AFTER, X_USED,
    header_format::{HeaderFormat, HeaderFormats, ResetFormat},
    stack::{self, retry_after, retry_after_millis},
    text::{self, QuotaUnit, QuotaUnits, Text, number_value, per_second, round_up, until_more},
    unit_format::UnitLines,
};

/// Writes the headers of a limiter's decisions.
pub(crate) struct HeaderWriter {
    options: Arc<HeaderOptions>,
    exposed: Option<HeaderFormats>,
    has_millis: bool,
    /// The value of `RateLimit-Policy`, where the default format is the only one.
    lists: Option<HeaderValue>,
    /// The value of `RateLimit-Policy`, where a format has that header.
    policies: Option<HeaderValue>,
    /// The beginning of each policy's list member.
    prefixes: Box<[Box<[u8]>]>,
}

/// Stores the options of a layer for its headers.
#[derive(Clone, Default)]
pub(crate) struct HeaderOptions {
    pub(crate) formats: HeaderFormats,
    pub(crate) units: QuotaUnits,
    pub(crate) exposes_headers: bool,
    pub(crate) marks_degraded: bool,
}

impl HeaderOptions {
    /// Returns the value of `RateLimit-Policy`. At most one format has that header.
    fn policies(&self, policies: &PolicySet, partition_key: Option<&[u8]>) -> Option<HeaderValue> {
        self.formats.iter().find_map(|format| match format {
            HeaderFormat::Ietf08 => Some(text::policies_08(policies, &self.units, partition_key)),
            HeaderFormat::Ietf07 | HeaderFormat::Ietf06 => Some(text::policies_06(policies)),
            _ => None,
        })
    }

    fn is_concurrency(&self, policy: &Policy) -> bool {
        self.units.of(policy.name()) == QuotaUnit::CONCURRENT_REQUESTS
    }
}

impl HeaderWriter {
    pub(crate) fn new(options: &Arc<HeaderOptions>, policies: &PolicySet) -> Self {
        let text = options.policies(policies, None);
        let is_short = options.formats.only() == Some(HeaderFormat::Ietf08)
            && !policies.iter().any(|policy| options.is_concurrency(policy));
        Self {
            options: Arc::clone(options),
            exposed: options.exposes_headers.then_some(options.formats),
            has_millis: options.formats.iter().any(|format| format == HeaderFormat::OpenAi),
            lists: text.clone().filter(|_| is_short),
            policies: text,
            prefixes: policies.iter().map(text::state_prefix_08).collect(),
        }
    }

    /// Returns whether a denial has its wait in milliseconds too.
    pub(crate) fn has_millis(&self) -> bool {
        self.has_millis
    }

    /// Returns the value of `RateLimit-Policy`, for a response without a decision.
    pub(crate) fn policies(&self) -> Option<&HeaderValue> {
        self.policies.as_ref()
    }

    /// Marks a rejection that the store did not decide, if the layer reports it to clients.
    pub(crate) fn mark_degraded(&self, kind: ErrorKind, missing: &mut MissingHeaders<'_>) {
        if self.options.marks_degraded {
            missing.mark_degraded(kind, self.options.exposes_headers);
        }
    }

    /// Writes the headers of a decision, whose states are `states`. An open limiter that reaches no store has checked
    /// no policy and writes none.
    // Inlined by force, as all of the default format is: the values are built inside the response future.
    #[inline(always)]
    pub(crate) fn update<'a>(
        &self,
        decision: &Decision,
        states: impl Iterator<Item = PolicyState<'a>>,
        details: &ResponseDetails,
    ) -> HeaderUpdate {
        match &self.lists {
            // A degraded decision may follow other policies than the configured ones: the share of this replica.
            Some(policies) if details.partition_key.is_none() && !decision.is_degraded() => {
                let (states, until_more) = self.states(states, details);
                let headers = Headers::Lists { policies: policies.clone(), states };
                HeaderUpdate { headers, until_more, exposed: self.exposed, degraded: None }
            }
            _ => self.update_with(decision, details),
        }
    }

    /// Writes the value of `RateLimit`. Returns it with the seconds until every spent policy has more units.
    #[inline(always)]
    fn states<'a>(
        &self,
        states: impl Iterator<Item = PolicyState<'a>>,
        details: &ResponseDetails,
    ) -> (HeaderValue, u64) {
        let (mut text, mut longest) = (Text::new(), 0);
        for (state, prefix) in states.zip(&self.prefixes) {
            let remaining = state.remaining();
            text.state_08(prefix, remaining, round_up(until_more(&state, details.jitter)));
            if remaining == 0 {
                longest = longest.max(round_up(state.more_after().saturating_add(details.jitter)));
            }
        }
        (text.finish(), longest)
    }

    /// Writes the headers of any decision in any format.
    fn update_with(&self, decision: &Decision, details: &ResponseDetails) -> HeaderUpdate {
        let spent = decision.states().filter(|state| state.remaining() == 0);
        let until_more = spent.map(|state| round_up(state.more_after().saturating_add(details.jitter))).max();
        let mut all = self.options.formats.iter().filter_map(|format| self.headers(format, decision, details));
        let headers = match (all.next(), all.next()) {
            (None, _) => Headers::None,
            (Some(only), None) => only,
            (Some(first), Some(second)) => Headers::Several([first, second].into_iter().chain(all).collect()),
        };
        let degraded = decision.degraded().filter(|_| self.options.marks_degraded);
        HeaderUpdate { headers, until_more: until_more.unwrap_or(0), exposed: self.exposed, degraded }
    }

    /// Writes the headers of one format. An open limiter that reaches no store has checked no policy and has none.
    fn headers(&self, format: HeaderFormat, decision: &Decision, details: &ResponseDetails) -> Option<Headers> {
        let state = decision.binding()?;
        if let Some(format) = format.by_unit() {
            return Some(Headers::Units(format.lines(decision, &self.options.units, details.jitter)));
        }
        let policies = || self.policies_of(decision, details);
        if format == HeaderFormat::Ietf08 {
            return Some(Headers::Lists { policies: policies()?, states: self.any_states(decision, details) });
        }
        let policies = matches!(format, HeaderFormat::Ietf07 | HeaderFormat::Ietf06).then(policies).flatten();
        let lines = lines(format, decision, &state, details);
        Some(Headers::Lines(HeaderLines { format, policies, lines, remaining: state.remaining() }))
    }

    /// Writes the value of `RateLimit` for any decision.
    fn any_states(&self, decision: &Decision, details: &ResponseDetails) -> HeaderValue {
        let mut text = Text::new();
        for (state, prefix) in decision.states().zip(&self.prefixes) {
            // Units of a limit of concurrent requests come back at a time that nobody knows.
            let is_timed = !self.options.is_concurrency(state.policy());
            let until_more = if is_timed { round_up(until_more(&state, details.jitter)) } else { 0 };
            text.state_08(prefix, state.remaining(), until_more);
            if let Some(partition_key) = &details.partition_key {
                text.partition_key(partition_key);
            }
        }
        text.finish()
    }

    fn policies_of(&self, decision: &Decision, details: &ResponseDetails) -> Option<HeaderValue> {
        let partition_key = details.partition_key.as_ref().map(|key| key.as_slice());
        if decision.is_degraded() || partition_key.is_some() {
            return self.options.policies(decision.policies(), partition_key);
        }
        self.policies.clone()
    }
}

/// Returns the headers with single values. `state` belongs to the binding policy.
fn lines(
    format: HeaderFormat,
    decision: &Decision,
    state: &PolicyState<'_>,
    details: &ResponseDetails,
) -> Vec<(HeaderName, HeaderValue)> {
    let number = |name, number: u64| (name, number_value(number));
    let quota = state.policy().quota();
    let (remaining, until_more) = (state.remaining(), until_more(state, details.jitter));
    match format {
        HeaderFormat::Ietf08 | HeaderFormat::OpenAi | HeaderFormat::Anthropic | HeaderFormat::None => Vec::new(),
        HeaderFormat::Ietf07 => vec![(RATELIMIT, text::state_07(state, details.jitter))],
        HeaderFormat::Ietf06 => vec![
            number(RATELIMIT_LIMIT, quota.burst()),
            number(RATELIMIT_REMAINING, remaining),
            number(RATELIMIT_RESET, round_up(until_more)),
        ],
        HeaderFormat::Envoy03 => vec![
            (X_LIMIT, text::limit_03(state, decision.policies())),
            number(X_REMAINING, remaining),
            number(X_RESET, round_up(until_more)),
        ],
        HeaderFormat::Legacy { reset } => vec![
            number(X_LIMIT, quota.burst()),
            number(X_REMAINING, remaining),
            number(X_RESET, reset.value(until_more)),
        ],
        HeaderFormat::GitHub => vec![
            number(X_LIMIT, quota.burst()),
            number(X_REMAINING, remaining),
            number(X_USED, quota.burst().saturating_sub(remaining)),
            number(X_RESET, ResetFormat::Epoch.value(until_more)),
            (X_RESOURCE, text::value(state.policy().name().as_bytes())),
        ],
        HeaderFormat::Spring => vec![
            number(X_REMAINING, remaining),
            number(X_REPLENISH_RATE, per_second(quota.amount(), quota.period())),
            number(X_BURST_CAPACITY, quota.burst()),
            number(X_REQUESTED_TOKENS, decision.cost().units()),
        ],
        HeaderFormat::RetryAfter | HeaderFormat::TowerGovernor => {
            let name = if format == HeaderFormat::RetryAfter { X_RETRY_AFTER } else { X_AFTER };
            let mut lines = vec![number(X_LIMIT, quota.burst()), number(X_REMAINING, remaining)];
            let retry_after = decision.retry_after().map(|after| after.saturating_add(details.jitter));
            lines.extend(retry_after.map(|after| number(name, round_up(after).max(1))));
            lines
        }
    }
}

/// Writes the headers of a limit of concurrent requests, in the default format.
///
/// `"streams";q=2;qu="concurrent-requests"` and `"streams";r=1`. Such a limit has no window, and nobody knows when a
/// permit comes back, so the parameters `w` and `t` are omitted.
pub(crate) struct PermitHeaders {
    policies: HeaderValue,
    /// The beginning of the state.
    prefix: Box<[u8]>,
}

impl PermitHeaders {
    pub(crate) fn new(name: &str, limit: u32) -> Self {
        let mut policies = Text::new();
        policies.policy_08(name, u64::from(limit), QuotaUnit::CONCURRENT_REQUESTS, None, None);
        let prefix = [b"\"", name.as_bytes(), b"\";r="].concat().into();
        Self { policies: policies.finish(), prefix }
    }

    /// Writes the headers of a response, with the number of permits that are left.
    pub(crate) fn update(&self, remaining: u64) -> HeaderUpdate {
        let mut states = Text::new();
        states.state_08(&self.prefix, remaining, 0);
        let headers = Headers::Lists { policies: self.policies.clone(), states: states.finish() };
        HeaderUpdate { headers, ..HeaderUpdate::EMPTY }
    }
}

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

    /// Forgets the wait for more units, because units of the request are given back.
    pub(crate) fn forget_wait(&mut self) {
        self.until_more = 0;
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
        if let Some(formats) = self.exposed.filter(|_| has_headers || headers.contains_key(header::RETRY_AFTER)) {
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
        if let Some(formats) = self.exposed.filter(|_| has_headers || missing.headers.contains_key(header::RETRY_AFTER))
        {
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

/// Allows scripts in browsers to read the headers of all formats. Without a format, that is the wait of a denial.
#[cold]
fn expose_formats(formats: HeaderFormats, headers: &mut HeaderMap) {
    match formats.only() {
        Some(format) => expose(format.joined_names(), headers),
        None => formats.iter().for_each(|format| expose(format.joined_names(), headers)),
    }
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
