//! Writes the headers of a decision, and adds them to a response.
//! The texts are built in `text.rs`, and headers that the response has already are combined in
//! `stack.rs`.

use std::{mem, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
};
use tollgate_core::{Decision, ErrorKind, Policy, PolicySet, limiter::PolicyState};

use super::{
    DEGRADED, HeaderLines, RATELIMIT, RATELIMIT_POLICY, RETRY_AFTER_MS, ResponseDetails,
    Strictness, X_AFTER, X_RETRY_AFTER, go_duration,
    header_format::{HeaderFormat, HeaderFormats, Number},
    reader::{parse_retry_after, retry_after_millis},
    stack,
    text::{
        self, QuotaUnit, QuotaUnits, Text, more_or_retry_after, number_value, per_second, round_up,
        until_more, wait_began,
    },
    timestamp,
};

/// Writes the headers of a limiter's decisions.
pub(crate) struct HeaderWriter {
    options: Arc<HeaderOptions>,
    exposed: Option<HeaderFormats>,
    has_millis: bool,
    /// The policies of the limiter, which these texts are made of.
    own: PolicySet,
    /// The value of `RateLimit-Policy`, where the default format is the only one.
    lists: Option<HeaderValue>,
    /// The value of `RateLimit-Policy`, where a format has that header.
    policies: Option<HeaderValue>,
    /// The beginning of each policy's list member. It is empty for a policy that is hidden.
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
            HeaderFormat::Ietf08 => text::policies_08(policies, &self.units, partition_key),
            HeaderFormat::Ietf07 | HeaderFormat::Ietf06 => text::policies_06(policies),
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
            own: policies.clone(),
            exposed: options.exposes_headers.then_some(options.formats),
            has_millis: options
                .formats
                .iter()
                .any(|format| format == HeaderFormat::OpenAi),
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

    /// Writes the headers of a decision, whose states are `states`. An open limiter that reaches no
    /// store has checked no policy and writes none.
    // Inlined by force, as all of the default format is: the values are built inside the response
    // future.
    #[inline(always)]
    pub(crate) fn update<'a>(
        &self,
        decision: &Decision,
        states: impl Iterator<Item = PolicyState<'a>>,
        details: &ResponseDetails,
    ) -> HeaderUpdate {
        match &self.lists {
            Some(policies) if details.partition_key.is_none() && self.is_own(decision) => {
                let (states, until_more) = self.states(states, details);
                let headers = Headers::Lists {
                    policies: policies.clone(),
                    states,
                };
                HeaderUpdate {
                    headers,
                    until_more,
                    exposed: self.exposed,
                    degraded: None,
                }
            }
            _ => self.update_with(decision, details),
        }
    }

    /// Returns whether the limiter's own policies decided. A degraded decision follows the share of this
    /// replica, and one by an exception the quota of that.
    #[inline]
    fn is_own(&self, decision: &Decision) -> bool {
        !decision.is_degraded() && *decision.policies() == self.own
    }

    /// Writes the value of `RateLimit`. Returns it with the seconds until every spent policy has
    /// more units.
    #[inline(always)]
    fn states<'a>(
        &self,
        states: impl Iterator<Item = PolicyState<'a>>,
        details: &ResponseDetails,
    ) -> (HeaderValue, u64) {
        let (mut text, mut longest) = (Text::new(), 0);
        for (state, prefix) in states.zip(&self.prefixes) {
            let remaining = state.remaining();
            if !prefix.is_empty() {
                text.state_08(
                    prefix,
                    remaining,
                    round_up(until_more(&state, details.jitter)),
                );
            }
            if remaining == 0 {
                longest = longest.max(round_up(
                    state.next_unit_after().saturating_add(details.jitter),
                ));
            }
        }
        (text.finish(), longest)
    }

    /// Writes the headers of any decision in any format.
    fn update_with(&self, decision: &Decision, details: &ResponseDetails) -> HeaderUpdate {
        let spent = decision.states().filter(|state| state.remaining() == 0);
        let until_more = spent
            .map(|state| round_up(state.next_unit_after().saturating_add(details.jitter)))
            .max();
        let mut all = Vec::new();
        for format in self.options.formats.iter() {
            self.write(format, decision, details, &mut all);
        }
        let headers = match all.len() {
            0 | 1 => all.pop().unwrap_or(Headers::None),
            _ => Headers::Several(all),
        };
        let degraded = decision.degraded().filter(|_| self.options.marks_degraded);
        HeaderUpdate {
            headers,
            until_more: until_more.unwrap_or(0),
            exposed: self.exposed,
            degraded,
        }
    }

    /// Writes the headers of one format. An open limiter that reaches no store has checked no
    /// policy and has none, and neither has one whose policies are all hidden.
    fn write(
        &self,
        format: HeaderFormat,
        decision: &Decision,
        details: &ResponseDetails,
        all: &mut Vec<Headers>,
    ) {
        let Some(state) = decision.strictest_shown() else {
            return;
        };
        if format == HeaderFormat::Ietf08 {
            let states = self.any_states(decision, details);
            all.extend(
                self.policies_of(decision, details)
                    .map(|policies| Headers::Lists { policies, states }),
            );
            return;
        }
        if !format.units().is_empty() {
            let group = |(unit, names)| {
                self.group(format, unit, names, decision, details)
                    .map(Headers::Lines)
            };
            all.push(Headers::Several(
                format.groups().filter_map(group).collect(),
            ));
            return;
        }
        let number = |(name, number)| Some((name, self.value(number, decision, &state, details)?));
        let lines = format.numbers().filter_map(number).collect();
        all.push(Headers::Lines(HeaderLines {
            format,
            lines,
            remaining: state.remaining(),
            reset: None,
        }));
    }

    /// Writes what a header reports of a decision. `state` belongs to the strictest policy.
    fn value(
        &self,
        number: Number,
        decision: &Decision,
        state: &PolicyState<'_>,
        details: &ResponseDetails,
    ) -> Option<HeaderValue> {
        let quota = state.policy().quota();
        Some(number_value(match number {
            Number::Limit => quota.burst(),
            Number::Remaining => state.remaining(),
            Number::Reset(reset) => {
                reset.value(decision.decided_at(), until_more(state, details.jitter))
            }
            Number::Used => quota.burst().saturating_sub(state.remaining()),
            Number::Rate => per_second(quota.amount(), quota.period()),
            Number::Cost => decision.cost().units(),
            Number::Wait => round_up(decision.retry_after()?.saturating_add(details.jitter)).max(1),
            Number::Resource => return Some(text::value(state.policy().name().as_bytes())),
            Number::State => return Some(text::state_07(state, details.jitter)),
            Number::Quotas => return self.policies_of(decision, details),
            Number::LimitAndQuotas => return Some(text::limit_03(state, decision.policies())),
        }))
    }

    /// Writes the headers of one unit. Of several policies that count it, the most restrictive one
    /// stands for it.
    fn group(
        &self,
        format: HeaderFormat,
        unit: QuotaUnit,
        names: [&'static str; 3],
        decision: &Decision,
        details: &ResponseDetails,
    ) -> Option<HeaderLines> {
        let states = decision
            .states()
            .filter(|state| !state.policy().is_hidden())
            .filter(|state| self.options.units.of(state.policy().name()) == unit);
        let state = states.max_by_key(|state| {
            (
                state.retry_after(),
                Strictness::new(state.remaining(), state.next_unit_after()),
                state.reset_after(),
            )
        })?;
        let remaining = state.remaining();
        // Never before the time of `Retry-After`, which has the same jitter.
        let jitter = if remaining == 0 || state.is_exceeded() {
            details.jitter
        } else {
            Duration::ZERO
        };
        let reset = state
            .reset_after()
            .max(more_or_retry_after(&state))
            .saturating_add(jitter);
        let reset_value = match format {
            HeaderFormat::OpenAi => go_duration::value(reset),
            _ => timestamp::value(wait_began(decision.decided_at()).saturating_add(reset))?,
        };
        let values = [
            number_value(state.policy().quota().burst()),
            number_value(remaining),
            reset_value,
        ];
        let lines = names
            .map(HeaderName::from_static)
            .into_iter()
            .zip(values)
            .collect();
        Some(HeaderLines {
            format,
            lines,
            remaining,
            reset: Some(reset),
        })
    }

    /// Writes the value of `RateLimit` for any decision.
    fn any_states(&self, decision: &Decision, details: &ResponseDetails) -> HeaderValue {
        let mut text = Text::new();
        let shown = decision.states().zip(&self.prefixes);
        for (state, prefix) in shown.filter(|(_, prefix)| !prefix.is_empty()) {
            // Units of a limit of concurrent requests come back at a time that nobody knows.
            let is_timed = !self.options.is_concurrency(state.policy());
            let until_more = if is_timed {
                round_up(until_more(&state, details.jitter))
            } else {
                0
            };
            text.state_08(prefix, state.remaining(), until_more);
            if let Some(partition_key) = &details.partition_key {
                text.partition_key(partition_key);
            }
        }
        text.finish()
    }

    fn policies_of(&self, decision: &Decision, details: &ResponseDetails) -> Option<HeaderValue> {
        let partition_key = details.partition_key.as_ref().map(|key| key.as_slice());
        if partition_key.is_some() || !self.is_own(decision) {
            return self.options.policies(decision.policies(), partition_key);
        }
        self.policies.clone()
    }
}

/// Writes the headers of a limit of concurrent requests, in the default format.
///
/// `"streams";q=2;qu="concurrent-requests"` and `"streams";r=1`. Such a limit has no window, and
/// nobody knows when a permit comes back, so the parameters `w` and `t` are omitted.
pub(crate) struct PermitHeaders {
    policies: HeaderValue,
    /// The beginning of the state.
    prefix: Box<[u8]>,
}

impl PermitHeaders {
    pub(crate) fn new(name: &str, limit: u32) -> Self {
        let mut policies = Text::new();
        policies.policy_08(
            name,
            u64::from(limit),
            QuotaUnit::CONCURRENT_REQUESTS,
            None,
            None,
        );
        let prefix = [b"\"", name.as_bytes(), b"\";r="].concat().into();
        Self {
            policies: policies.finish(),
            prefix,
        }
    }

    /// Writes the headers of a response, with the number of permits that are left.
    pub(crate) fn update(&self, remaining: u64) -> HeaderUpdate {
        let mut states = Text::new();
        states.state_08(&self.prefix, remaining, 0);
        let headers = Headers::Lists {
            policies: self.policies.clone(),
            states: states.finish(),
        };
        HeaderUpdate {
            headers,
            ..HeaderUpdate::EMPTY
        }
    }
}

/// Stores the headers of a decision. They are written when the decision is made, so that nothing
/// else of the decision is stored until the service responds.
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
    /// All other formats, or one unit of such a format.
    Lines(HeaderLines),
    /// The headers of several formats or units.
    Several(Vec<Self>),
}

impl Headers {
    /// Adds the headers to those that the response has already. `until_more` is the wait of the
    /// layer in seconds.
    #[cold]
    fn add_to(self, until_more: u64, headers: &mut HeaderMap) {
        match self {
            Self::None => {}
            Self::Lists { policies, states } => add_lists(policies, states, headers),
            Self::Lines(lines) => stack::add_lines(lines, until_more, headers),
            Self::Several(several) => several
                .into_iter()
                .for_each(|own| own.add_to(until_more, headers)),
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
            Self::Lines(HeaderLines { lines, .. }) => {
                for (name, value) in lines {
                    missing.add(name, value);
                }
            }
            Self::Several(several) => several
                .into_iter()
                .for_each(|own| own.add_missing_to(missing)),
        }
    }
}

impl HeaderUpdate {
    /// Changes nothing.
    pub(crate) const EMPTY: Self = Self {
        headers: Headers::None,
        until_more: 0,
        exposed: None,
        degraded: None,
    };

    /// Returns whether the decision left no unit of a policy.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.until_more > 0
    }

    /// Forgets the wait for more units, because units of the request are given back.
    pub(crate) fn forget_wait(&mut self) {
        self.until_more = 0;
    }

    /// Moves the headers into the response of the inner service, which may be limited by another
    /// layer.
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
        if let Some(formats) = self
            .exposed
            .filter(|_| has_headers || headers.contains_key(header::RETRY_AFTER))
        {
            expose_formats(formats, headers);
        }
        if let Some(kind) = self.degraded {
            mark_degraded(kind, self.exposed.is_some(), headers);
        }
    }

    /// Adds the headers to a rejection. A header that the responder has set stays as it is.
    // Inlined by force, as the writer is: the values move once, from where they are built into the
    // header map.
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
        if let Some(formats) = self
            .exposed
            .filter(|_| has_headers || missing.headers.contains_key(header::RETRY_AFTER))
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
/// Most responses have none of them. The map hashes each name byte by byte, so each name is hashed
/// once.
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
    /// The responder has set no header, or the type of the content alone. Most do, and then nothing
    /// has to be looked up.
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
    headers
        .entry(DEGRADED)
        .or_insert(HeaderValue::from_static(kind.as_str()));
    if exposes {
        expose(DEGRADED, headers);
    }
}

/// Allows scripts in browsers to read the headers of all formats. Without a format, that is the
/// wait of a denial.
#[cold]
fn expose_formats(formats: HeaderFormats, headers: &mut HeaderMap) {
    match formats.only() {
        Some(format) => expose(format.joined_names(), headers),
        None => formats
            .iter()
            .for_each(|format| expose(format.joined_names(), headers)),
    }
}

/// Allows scripts in browsers to read headers.
#[cold]
fn expose(names: &'static str, headers: &mut HeaderMap) {
    let is_exposed = headers
        .get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS)
        .iter()
        .any(|line| line == names);
    if !is_exposed {
        headers.append(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(names),
        );
    }
}

/// Raises the `Retry-After` of an inner layer or of the service to the time at which this layer
/// admits the client. A value that clients cannot parse is replaced.
fn raise_retry_after(until_more: u64, headers: &mut HeaderMap) {
    for name in [header::RETRY_AFTER, X_RETRY_AFTER, X_AFTER] {
        if let Some(inner) = headers.get(&name)
            && parse_retry_after(inner).is_none_or(|inner| round_up(inner) < until_more)
        {
            headers.insert(name, number_value(until_more));
        }
    }
    let millis = until_more.saturating_mul(1_000);
    if headers.contains_key(RETRY_AFTER_MS)
        && retry_after_millis(headers).is_none_or(|inner| inner < millis)
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
            let chosen = inner
                .iter()
                .enumerate()
                .filter(|(at, _)| chosen >> at & 1 == 1);
            let headers: HeaderMap = chosen
                .map(|(_, (name, value))| (name.clone(), HeaderValue::from_static(value)))
                .collect();
            let policies = HeaderValue::from_static(r#""burst";q=20;w=1"#);
            let states = HeaderValue::from_static(r#""burst";r=7;t=1"#);
            let (mut found, mut expected) = (headers.clone(), headers);
            add_lists(policies.clone(), states.clone(), &mut found);
            stack::add_lists(policies, states, &mut expected);
            assert_eq!(found, expected);
        }
    }
}
