//! What an answer tells of the limits, in the words of the dialect that was chosen.

mod dialect;
mod text;
mod value;

use std::{mem, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
};
use tollgate::{Decision, PolicySet, PolicyState};

pub use dialect::{Dialect, Reset};
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
    dialect: Dialect,
    /// The field that tells what is configured, if the dialect has one.
    configured: Option<&'static HeaderValue>,
    /// What stands before the numbers of each policy.
    openings: Box<[Box<[u8]>]>,
    /// Whether the scripts of browsers may read the fields.
    is_exposed: bool,
}

/// What an answer tells of a decision. It is worked out when that is made, so that nothing else has to be kept until the
/// service has answered.
pub(crate) struct Told {
    fields: Fields,
    /// The seconds until more is there, where nothing is left; otherwise 0.
    come_back: u64,
    /// Whose fields the scripts of browsers may read.
    exposed: Option<Dialect>,
}

enum Fields {
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

struct Line {
    name: HeaderName,
    value: HeaderValue,
    /// Whether layers add their members to it; otherwise one layer alone can speak.
    is_list: bool,
}

impl Wording {
    pub(crate) fn new(dialect: Dialect, policies: &PolicySet, is_for_browsers: bool) -> Self {
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

    /// What an answer tells of a decision: nothing but when to come back, when no policy was asked.
    #[inline]
    pub(crate) fn of(&self, decision: &Decision) -> Told {
        match self.configured {
            // The share that a replica enforces by itself is not what was configured.
            Some(policies) if self.dialect == Dialect::Ietf08 && !decision.is_degraded() => {
                self.lists(decision, policies)
            }
            _ => self.lines(decision),
        }
    }

    /// The default: one look at each policy.
    #[inline]
    fn lists(&self, decision: &Decision, policies: &'static HeaderValue) -> Told {
        let (mut value, mut come_back) = (Value::new(), 0);
        for (state, opening) in decision.states().zip(&self.openings) {
            let (remaining, more) = (state.remaining(), seconds(more_after(&state)));
            value.state_08(opening, remaining, more);
            if remaining == 0 {
                come_back = come_back.max(seconds(state.more_after()));
            }
        }
        Told { fields: Fields::Lists { policies, states: value.finish() }, come_back, exposed: self.exposed() }
    }

    fn lines(&self, decision: &Decision) -> Told {
        let binding = if self.dialect == Dialect::None { None } else { decision.binding() };
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

    fn exposed(&self) -> Option<Dialect> {
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
            Dialect::Ietf08 => {
                let mut value = Value::new();
                for (state, opening) in decision.states().zip(&self.openings) {
                    value.state_08(opening, state.remaining(), seconds(more_after(&state)));
                }
                lines.push(Line::list(RATELIMIT, value.finish()));
            }
            Dialect::Ietf07 => lines.push(Line::one(RATELIMIT, value::state_07(state))),
            Dialect::Ietf06 => lines.extend([
                number(RATELIMIT_LIMIT, quota.amount().into()),
                number(RATELIMIT_REMAINING, remaining),
                number(RATELIMIT_RESET, more),
            ]),
            Dialect::Envoy03 => lines.extend([
                Line::one(X_LIMIT, value::limit_03(state, decision.policies())),
                number(X_REMAINING, remaining),
                number(X_RESET, more),
            ]),
            Dialect::Legacy { reset } => lines.extend([
                number(X_LIMIT, quota.burst().into()),
                number(X_REMAINING, remaining),
                number(X_RESET, reset.tell(more)),
            ]),
            Dialect::Spring => lines.extend([
                number(X_REMAINING, remaining),
                number(X_REPLENISH_RATE, (f64::from(quota.amount()) / quota.period().as_secs_f64()) as u64),
                number(X_BURST_CAPACITY, quota.burst().into()),
                number(X_REQUESTED_TOKENS, decision.cost().units().into()),
            ]),
            Dialect::RetryAfter => {
                lines.extend([number(X_LIMIT, quota.burst().into()), number(X_REMAINING, remaining)]);
                lines.extend(decision.retry_after().map(|after| number(X_RETRY_AFTER, seconds(after).max(1))));
            }
            Dialect::None => {}
        }
    }
}

impl Line {
    fn list(name: HeaderName, value: HeaderValue) -> Self {
        Self { name, value, is_list: true }
    }

    fn one(name: HeaderName, value: HeaderValue) -> Self {
        Self { name, value, is_list: false }
    }
}

fn configured(dialect: Dialect, policies: &PolicySet) -> Option<HeaderValue> {
    match dialect {
        Dialect::Ietf08 => Some(value::policies_08(policies)),
        Dialect::Ietf07 | Dialect::Ietf06 => Some(value::policies_06(policies)),
        _ => None,
    }
}

impl Told {
    /// Nothing at all.
    pub(crate) const NOTHING: Self = Self { fields: Fields::None, come_back: 0, exposed: None };

    /// Moves the fields to the answer of the service inside, which another layer may have limited too: lists grow; of
    /// single values those of the layer with the least left stay.
    #[inline]
    pub(crate) fn add_to(&mut self, headers: &mut HeaderMap) {
        if self.come_back > 0 {
            postpone(self.come_back, headers);
        }
        match &mut self.fields {
            Fields::None => return,
            Fields::Lists { policies, states } => {
                append(headers, RATELIMIT_POLICY, policies.clone());
                append(headers, RATELIMIT, mem::replace(states, HeaderValue::from_static("")));
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

    /// Adds the fields that a responder left out.
    pub(crate) fn fill_in(self, headers: &mut HeaderMap) {
        match self.fields {
            Fields::None => return,
            Fields::Lists { policies, states } => {
                headers.entry(RATELIMIT_POLICY).or_insert_with(|| policies.clone());
                headers.entry(RATELIMIT).or_insert(states);
            }
            Fields::Lines { lines, .. } => {
                for Line { name, value, .. } in lines {
                    headers.entry(name).or_insert(value);
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
fn remaining_in(headers: &HeaderMap) -> Option<u64> {
    let number = |text: &str| text.trim().parse().ok();
    let field = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if let Some(text) = field(X_REMAINING).or_else(|| field(RATELIMIT_REMAINING)) {
        return number(text);
    }
    field(RATELIMIT)?.split(',').find_map(|member| number(member.trim().strip_prefix("remaining=")?))
}

/// Adds members to a list that a layer further in may have begun.
fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(place) => {
            place.insert(value);
        }
        Entry::Occupied(mut place) => {
            let mut joined = Vec::new();
            for line in place.iter() {
                joined.extend_from_slice(line.as_bytes());
                joined.extend_from_slice(b", ");
            }
            joined.extend_from_slice(value.as_bytes());
            // Valid values, joined by valid bytes.
            place.insert_mult(HeaderValue::from_maybe_shared(bytes::Bytes::from(joined)).unwrap_or(value));
        }
    }
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

/// Until more is there; with nothing left the time to come back.
fn more_after(state: &PolicyState<'_>) -> Duration {
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
