//! The headers of a limiter in the format that the layer is configured with.

use http::HeaderValue;
use tollgate::{Decision, PolicySet, PolicyState};

use super::{
    header_format::HeaderFormat,
    names::{
        RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET, X_BURST_CAPACITY, X_LIMIT,
        X_REMAINING, X_REPLENISH_RATE, X_REQUESTED_TOKENS, X_RESET, X_RETRY_AFTER,
    },
    seconds::{round_up, until_more},
    text::{self, Text, number_value},
    update::{HeaderLine, HeaderUpdate, Headers},
};

/// Writes the headers of a limiter's decisions.
pub(crate) struct HeaderWriter {
    format: HeaderFormat,
    /// The value of `RateLimit-Policy`, where the format has that header.
    policies: Option<HeaderValue>,
    /// The beginning of each policy's list member.
    prefixes: Box<[Box<[u8]>]>,
    exposes_headers: bool,
}

impl HeaderWriter {
    pub(crate) fn new(format: HeaderFormat, policies: &PolicySet, exposes_headers: bool) -> Self {
        Self {
            format,
            policies: policy_header(format, policies),
            prefixes: policies.iter().map(text::state_prefix_08).collect(),
            exposes_headers,
        }
    }

    /// Returns the value of `RateLimit-Policy`, for a response without a decision.
    pub(crate) fn policies(&self) -> Option<&HeaderValue> {
        self.policies.as_ref()
    }

    /// Writes the headers of a decision, whose states are `states`. An open limiter that reaches no store has checked no policy and writes none.
    // Inlined by force, as all of the default format is: the values are built inside the response future.
    #[inline(always)]
    pub(crate) fn update<'a>(
        &self,
        decision: &Decision,
        states: impl Iterator<Item = PolicyState<'a>>,
    ) -> HeaderUpdate {
        match &self.policies {
            // A degraded decision may follow other policies than the configured ones: the share of this replica.
            Some(policies) if self.format == HeaderFormat::Ietf08 && !decision.is_degraded() => {
                self.lists(states, policies)
            }
            _ => self.lines(decision),
        }
    }

    #[inline(always)]
    fn lists<'a>(&self, states: impl Iterator<Item = PolicyState<'a>>, policies: &HeaderValue) -> HeaderUpdate {
        let (states, until_more) = self.states(states);
        let headers = Headers::Lists { policies: policies.clone(), states };
        HeaderUpdate { headers, until_more, exposed: self.exposed() }
    }

    /// Writes the value of `RateLimit`. Returns it with the seconds until every spent policy has more units.
    #[inline(always)]
    fn states<'a>(&self, states: impl Iterator<Item = PolicyState<'a>>) -> (HeaderValue, u64) {
        let (mut text, mut longest) = (Text::new(), 0);
        for (state, prefix) in states.zip(&self.prefixes) {
            let remaining = state.remaining();
            text.state_08(prefix, remaining, round_up(until_more(&state)));
            if remaining == 0 {
                longest = longest.max(round_up(state.more_after()));
            }
        }
        (text.finish(), longest)
    }

    fn lines(&self, decision: &Decision) -> HeaderUpdate {
        let binding = if self.format == HeaderFormat::None { None } else { decision.binding() };
        let headers = match binding {
            Some(state) => {
                let (mut lines, policies) = (Vec::new(), self.policies_of(decision));
                lines.extend(policies.map(|value| HeaderLine::list(RATELIMIT_POLICY, value)));
                self.push_state(decision, &state, &mut lines);
                Headers::Lines { lines, remaining: state.remaining() }
            }
            None => Headers::None,
        };
        let spent = decision.states().filter(|state| state.remaining() == 0);
        let until_more = spent.map(|state| round_up(state.more_after())).max().unwrap_or(0);
        HeaderUpdate { headers, until_more, exposed: self.exposed() }
    }

    fn exposed(&self) -> Option<HeaderFormat> {
        self.exposes_headers.then_some(self.format)
    }

    fn policies_of(&self, decision: &Decision) -> Option<HeaderValue> {
        if decision.is_degraded() {
            return policy_header(self.format, decision.policies());
        }
        self.policies.clone()
    }

    /// Appends the headers of a format, except `RateLimit-Policy`. `state` belongs to the binding policy.
    fn push_state(&self, decision: &Decision, state: &PolicyState<'_>, lines: &mut Vec<HeaderLine>) {
        let number = |name, number: u64| HeaderLine::single(name, number_value(number));
        let quota = state.policy().quota();
        let (remaining, until_more) = (state.remaining(), round_up(until_more(state)));
        match self.format {
            HeaderFormat::Ietf08 => lines.push(HeaderLine::list(RATELIMIT, self.states(decision.states()).0)),
            HeaderFormat::Ietf07 => lines.push(HeaderLine::single(RATELIMIT, text::state_07(state))),
            HeaderFormat::Ietf06 => lines.extend([
                number(RATELIMIT_LIMIT, quota.amount()),
                number(RATELIMIT_REMAINING, remaining),
                number(RATELIMIT_RESET, until_more),
            ]),
            HeaderFormat::Envoy03 => lines.extend([
                HeaderLine::single(X_LIMIT, text::limit_03(state, decision.policies())),
                number(X_REMAINING, remaining),
                number(X_RESET, until_more),
            ]),
            HeaderFormat::Legacy { reset } => lines.extend([
                number(X_LIMIT, quota.burst()),
                number(X_REMAINING, remaining),
                number(X_RESET, reset.value(until_more)),
            ]),
            HeaderFormat::Spring => lines.extend([
                number(X_REMAINING, remaining),
                number(X_REPLENISH_RATE, (quota.amount() as f64 / quota.period().as_secs_f64()) as u64),
                number(X_BURST_CAPACITY, quota.burst()),
                number(X_REQUESTED_TOKENS, decision.cost().units()),
            ]),
            HeaderFormat::RetryAfter => {
                lines.extend([number(X_LIMIT, quota.burst()), number(X_REMAINING, remaining)]);
                lines.extend(decision.retry_after().map(|after| number(X_RETRY_AFTER, round_up(after).max(1))));
            }
            HeaderFormat::None => {}
        }
    }
}

fn policy_header(format: HeaderFormat, policies: &PolicySet) -> Option<HeaderValue> {
    match format {
        HeaderFormat::Ietf08 => Some(text::policies_08(policies)),
        HeaderFormat::Ietf07 | HeaderFormat::Ietf06 => Some(text::policies_06(policies)),
        _ => None,
    }
}
