//! The headers of a limiter in the format that the layer is configured with.

use http::{HeaderName, HeaderValue};
use tollgate::{Decision, ErrorKind, PolicySet, PolicyState};

use super::{
    details::ResponseDetails,
    header_format::HeaderFormat,
    lines::HeaderLines,
    names::{
        RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET, X_BURST_CAPACITY, X_LIMIT, X_REMAINING,
        X_REPLENISH_RATE, X_REQUESTED_TOKENS, X_RESET, X_RETRY_AFTER,
    },
    numbers::{number_value, per_second},
    quota_unit::QuotaUnit,
    seconds::{round_up, until_more},
    text::{self, Text},
    update::{HeaderUpdate, Headers, MissingHeaders},
};

/// Writes the headers of a limiter's decisions.
pub(crate) struct HeaderWriter {
    options: HeaderOptions,
    /// The value of `RateLimit-Policy`, where the format has that header.
    policies: Option<HeaderValue>,
    /// The beginning of each policy's list member.
    prefixes: Box<[Box<[u8]>]>,
}

/// Stores the options of a layer for its headers.
#[derive(Clone, Copy, Default)]
pub(crate) struct HeaderOptions {
    pub(crate) format: HeaderFormat,
    pub(crate) unit: Option<QuotaUnit>,
    pub(crate) exposes_headers: bool,
    pub(crate) marks_degraded: bool,
}

impl HeaderOptions {
    /// Returns the value of `RateLimit-Policy`.
    fn policies(&self, policies: &PolicySet, partition_key: Option<&[u8]>) -> Option<HeaderValue> {
        match self.format {
            HeaderFormat::Ietf08 => Some(text::policies_08(policies, self.unit, partition_key)),
            HeaderFormat::Ietf07 | HeaderFormat::Ietf06 => Some(text::policies_06(policies)),
            _ => None,
        }
    }

    fn exposed(&self) -> Option<HeaderFormat> {
        self.exposes_headers.then_some(self.format)
    }
}

impl HeaderWriter {
    pub(crate) fn new(options: HeaderOptions, policies: &PolicySet) -> Self {
        Self {
            options,
            policies: options.policies(policies, None),
            prefixes: policies.iter().map(text::state_prefix_08).collect(),
        }
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

    /// Writes the headers of a decision, whose states are `states`. An open limiter that reaches no store has checked no policy and writes none.
    // Inlined by force, as all of the default format is: the values are built inside the response future.
    #[inline(always)]
    pub(crate) fn update<'a>(
        &self,
        decision: &Decision,
        states: impl Iterator<Item = PolicyState<'a>>,
        details: &ResponseDetails,
    ) -> HeaderUpdate {
        match &self.policies {
            // A degraded decision may follow other policies than the configured ones: the share of this replica.
            Some(policies)
                if self.options.format == HeaderFormat::Ietf08
                    && details.partition_key.is_none()
                    && !decision.is_degraded() =>
            {
                let (states, until_more) = self.states(states, details);
                let headers = Headers::Lists { policies: policies.clone(), states };
                HeaderUpdate { headers, until_more, exposed: self.options.exposed(), degraded: None }
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
            if let Some(partition_key) = &details.partition_key {
                text.partition_key(partition_key);
            }
            if remaining == 0 {
                longest = longest.max(round_up(state.more_after().saturating_add(details.jitter)));
            }
        }
        (text.finish(), longest)
    }

    /// Writes the headers of any decision in any format.
    fn update_with(&self, decision: &Decision, details: &ResponseDetails) -> HeaderUpdate {
        let format = self.options.format;
        let spent = decision.states().filter(|state| state.remaining() == 0);
        let until_more = spent.map(|state| round_up(state.more_after().saturating_add(details.jitter))).max();
        let headers = match decision.binding() {
            None => Headers::None,
            Some(_) if format == HeaderFormat::None => Headers::None,
            Some(state) => match (format, self.policies_of(decision, details)) {
                (HeaderFormat::Ietf08, Some(policies)) => {
                    Headers::Lists { policies, states: self.states(decision.states(), details).0 }
                }
                (_, policies) => {
                    let lines = lines(format, decision, &state, details);
                    Headers::Lines(HeaderLines { format, policies, lines, remaining: state.remaining() })
                }
            },
        };
        let degraded = decision.degraded().filter(|_| self.options.marks_degraded);
        HeaderUpdate { headers, until_more: until_more.unwrap_or(0), exposed: self.options.exposed(), degraded }
    }

    fn policies_of(&self, decision: &Decision, details: &ResponseDetails) -> Option<HeaderValue> {
        let partition_key = details.partition_key.as_ref().map(<[u8; _]>::as_slice);
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
        HeaderFormat::Ietf08 | HeaderFormat::None => Vec::new(),
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
        HeaderFormat::Spring => vec![
            number(X_REMAINING, remaining),
            number(X_REPLENISH_RATE, per_second(quota.amount(), quota.period())),
            number(X_BURST_CAPACITY, quota.burst()),
            number(X_REQUESTED_TOKENS, decision.cost().units()),
        ],
        HeaderFormat::RetryAfter => {
            let mut lines = vec![number(X_LIMIT, quota.burst()), number(X_REMAINING, remaining)];
            let retry_after = decision.retry_after().map(|after| after.saturating_add(details.jitter));
            lines.extend(retry_after.map(|after| number(X_RETRY_AFTER, round_up(after).max(1))));
            lines
        }
    }
}
