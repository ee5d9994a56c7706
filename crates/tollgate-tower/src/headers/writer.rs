//! The headers of a limiter in the format that the layer is configured with.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tollgate::{Decision, ErrorKind, Policy, PolicySet, limiter::PolicyState};

use super::{
    HeaderLines, RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET, ResponseDetails, X_AFTER,
    X_BURST_CAPACITY, X_LIMIT, X_REMAINING, X_REPLENISH_RATE, X_REQUESTED_TOKENS, X_RESET, X_RESOURCE, X_RETRY_AFTER,
    X_USED,
    header_format::{HeaderFormat, HeaderFormats, ResetFormat},
    text::{self, QuotaUnit, QuotaUnits, Text, number_value, per_second, round_up, until_more},
    update::{HeaderUpdate, Headers, MissingHeaders},
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
