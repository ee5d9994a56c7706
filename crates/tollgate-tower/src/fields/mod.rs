//! What an answer tells of the limits, in the words of the dialect that was chosen.

mod header_format;
mod text;
mod told;
mod value;

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tollgate::{Decision, PolicySet, PolicyState};

pub use header_format::{HeaderFormat, Reset};
pub(crate) use told::Told;
use told::{Fields, Line};
use value::Value;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retry-after");
const X_REPLENISH_RATE: HeaderName = HeaderName::from_static("x-ratelimit-replenish-rate");
const X_BURST_CAPACITY: HeaderName = HeaderName::from_static("x-ratelimit-burst-capacity");
const X_REQUESTED_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-requested-tokens");

/// How answers tell of a limiter's decisions.
pub(crate) struct Wording {
    dialect: HeaderFormat,
    /// The field that tells what is configured, if the dialect has one.
    configured: Option<&'static HeaderValue>,
    /// What stands before the numbers of each policy.
    openings: Box<[Box<[u8]>]>,
    /// Whether the scripts of browsers may read the fields.
    is_exposed: bool,
}

impl Wording {
    pub(crate) fn new(dialect: HeaderFormat, policies: &PolicySet, is_for_browsers: bool) -> Self {
        Self {
            dialect,
            configured: configured(dialect, policies).map(text::kept),
            openings: policies.iter().map(value::opening_08).collect(),
            is_exposed: is_for_browsers,
        }
    }

    /// What an answer without a decision tells.
    pub(crate) fn configured(&self) -> Option<&'static HeaderValue> {
        self.configured
    }

    /// Whether the same is told of the same states at all times.
    pub(crate) fn is_steady(&self) -> bool {
        self.dialect != HeaderFormat::Legacy { reset: Reset::Epoch }
    }

    /// What an answer tells of a decision: nothing but when to come back, when no policy was asked.
    #[inline(always)]
    pub(crate) fn of(&self, decision: &Decision) -> Told {
        match self.configured {
            // The share that a replica enforces by itself is not what was configured.
            Some(policies) if self.dialect == HeaderFormat::Ietf08 && !decision.is_degraded() => {
                self.lists(decision, policies)
            }
            _ => self.lines(decision),
        }
    }

    /// The default.
    #[inline(always)]
    fn lists(&self, decision: &Decision, policies: &'static HeaderValue) -> Told {
        let (states, come_back) = self.states(decision);
        Told { fields: Fields::Lists { policies, states }, come_back, exposed: self.exposed() }
    }

    /// What is left of each policy, and when to come back, in one look at each.
    #[inline(always)]
    fn states(&self, decision: &Decision) -> (HeaderValue, u64) {
        let (mut value, mut come_back) = (Value::new(), 0);
        for (state, opening) in decision.states().zip(&self.openings) {
            let (remaining, more) = (state.remaining(), seconds(more_after(&state)));
            value.state_08(opening, remaining, more);
            if remaining == 0 {
                come_back = come_back.max(seconds(state.more_after()));
            }
        }
        (value.finish(), come_back)
    }

    fn lines(&self, decision: &Decision) -> Told {
        let binding = if self.dialect == HeaderFormat::None { None } else { decision.binding() };
        let fields = match binding {
            Some(state) => {
                let (mut lines, configured) = (Vec::new(), self.configured_of(decision));
                lines.extend(configured.map(|value| Line::list(RATELIMIT_POLICY, value)));
                self.words(decision, &state, &mut lines);
                Fields::Lines { lines, remaining: state.remaining() }
            }
            None => Fields::None,
        };
        let spent = decision.states().filter(|state| state.remaining() == 0);
        let come_back = spent.map(|state| seconds(state.more_after())).max().unwrap_or(0);
        Told { fields, come_back, exposed: self.exposed() }
    }

    fn exposed(&self) -> Option<HeaderFormat> {
        self.is_exposed.then_some(self.dialect)
    }

    fn configured_of(&self, decision: &Decision) -> Option<HeaderValue> {
        if decision.is_degraded() {
            return configured(self.dialect, decision.policies());
        }
        self.configured.cloned()
    }

    /// The lines of a dialect, but for what is configured; `state` is that of the policy that binds.
    fn words(&self, decision: &Decision, state: &PolicyState<'_>, lines: &mut Vec<Line>) {
        let number = |name, number: u64| Line::one(name, number.into());
        let quota = state.policy().quota();
        let (remaining, more) = (state.remaining(), seconds(more_after(state)));
        match self.dialect {
            HeaderFormat::Ietf08 => lines.push(Line::list(RATELIMIT, self.states(decision).0)),
            HeaderFormat::Ietf07 => lines.push(Line::one(RATELIMIT, value::state_07(state))),
            HeaderFormat::Ietf06 => lines.extend([
                number(RATELIMIT_LIMIT, quota.amount().into()),
                number(RATELIMIT_REMAINING, remaining),
                number(RATELIMIT_RESET, more),
            ]),
            HeaderFormat::Envoy03 => lines.extend([
                Line::one(X_LIMIT, value::limit_03(state, decision.policies())),
                number(X_REMAINING, remaining),
                number(X_RESET, more),
            ]),
            HeaderFormat::Legacy { reset } => lines.extend([
                number(X_LIMIT, quota.burst().into()),
                number(X_REMAINING, remaining),
                number(X_RESET, reset.tell(more)),
            ]),
            HeaderFormat::Spring => lines.extend([
                number(X_REMAINING, remaining),
                number(X_REPLENISH_RATE, (f64::from(quota.amount()) / quota.period().as_secs_f64()) as u64),
                number(X_BURST_CAPACITY, quota.burst().into()),
                number(X_REQUESTED_TOKENS, decision.cost().units().into()),
            ]),
            HeaderFormat::RetryAfter => {
                lines.extend([number(X_LIMIT, quota.burst().into()), number(X_REMAINING, remaining)]);
                lines.extend(decision.retry_after().map(|after| number(X_RETRY_AFTER, seconds(after).max(1))));
            }
            HeaderFormat::None => {}
        }
    }
}

fn configured(dialect: HeaderFormat, policies: &PolicySet) -> Option<HeaderValue> {
    match dialect {
        HeaderFormat::Ietf08 => Some(value::policies_08(policies)),
        HeaderFormat::Ietf07 | HeaderFormat::Ietf06 => Some(value::policies_06(policies)),
        _ => None,
    }
}

/// Until more is there; with nothing left the time to come back.
pub(crate) fn more_after(state: &PolicyState<'_>) -> Duration {
    match state.retry_after() {
        Some(retry_after) if state.remaining() == 0 => retry_after,
        _ => state.more_after(),
    }
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests;
