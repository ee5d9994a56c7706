//! What an answer tells of the limits, in the words of the dialect that was chosen.

mod dialect;
mod value;

use std::time::Duration;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, Entry},
};
use smallvec::SmallVec;
use tollgate::{Decision, PolicySet, PolicyState};

pub use dialect::{Dialect, Reset};

pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
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

/// What an answer tells.
pub(crate) struct Told {
    lines: SmallVec<[Line; 2]>,
    remaining: u64,
}

struct Line {
    name: HeaderName,
    value: HeaderValue,
    /// Whether layers add their members to it; otherwise one layer alone can speak.
    is_list: bool,
}

/// The field that tells what is configured, if the dialect has one.
pub(crate) fn configured(dialect: Dialect, policies: &PolicySet) -> Option<HeaderValue> {
    match dialect {
        Dialect::Ietf08 => Some(value::policies_08(policies)),
        Dialect::Ietf07 | Dialect::Ietf06 => Some(value::policies_06(policies)),
        _ => None,
    }
}

/// Adds all fields of a decision to the answer of the service inside, and says whether there are
/// any; none when no policy was asked. `configured` is what the function of that name says of the
/// decision's policies.
#[inline]
pub(crate) fn tell(
    dialect: Dialect,
    decision: &Decision,
    configured: Option<&HeaderValue>,
    headers: &mut HeaderMap,
) -> bool {
    if dialect == Dialect::Ietf08 {
        // It tells of each policy, so none has to be picked, and there are only lists.
        let Some(states) = value::states_08(decision) else { return false };
        if let Some(configured) = configured {
            append(headers, RATELIMIT_POLICY, configured.clone());
        }
        append(headers, RATELIMIT, states);
        return true;
    }
    let told = of(dialect, decision, configured);
    let is_told = told.is_some();
    if let Some(told) = told {
        merge(headers, told);
    }
    is_told
}

/// All fields of a decision, as [`tell`] adds them.
pub(crate) fn of(dialect: Dialect, decision: &Decision, configured: Option<&HeaderValue>) -> Option<Told> {
    if dialect == Dialect::None {
        return None;
    }
    let state = decision.binding()?;
    let list = |name, value| Line { name, value, is_list: true };
    let one = |name, value| Line { name, value, is_list: false };
    let number = |name, number: u64| one(name, number.into());
    let quota = state.policy().quota();
    let (remaining, more) = (state.remaining(), seconds(more_after(&state)));
    let mut lines = SmallVec::new();
    lines.extend(configured.map(|value| list(RATELIMIT_POLICY, value.clone())));
    match dialect {
        Dialect::Ietf08 => lines.push(list(RATELIMIT, value::states_08(decision)?)),
        Dialect::Ietf07 => lines.push(one(RATELIMIT, value::state_07(&state))),
        Dialect::Ietf06 => lines.extend([
            number(RATELIMIT_LIMIT, quota.amount().into()),
            number(RATELIMIT_REMAINING, remaining),
            number(RATELIMIT_RESET, more),
        ]),
        Dialect::Envoy03 => lines.extend([
            one(X_LIMIT, value::limit_03(&state, decision.policies())),
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
        Dialect::None => return None,
    }
    Some(Told { lines, remaining })
}

/// Adds the fields to the answer of the service inside, which another layer may have limited too:
/// lists grow; of single values those of the layer with the least left stay.
fn merge(headers: &mut HeaderMap, told: Told) {
    let is_least = remaining_in(headers).is_none_or(|inside| told.remaining < inside);
    for Line { name, value, is_list } in told.lines {
        if is_list {
            append(headers, name, value);
        } else if is_least || !headers.contains_key(&name) {
            headers.insert(name, value);
        }
    }
}

/// Adds the fields that a responder left out.
pub(crate) fn fill_in(headers: &mut HeaderMap, told: Told) {
    for Line { name, value, .. } in told.lines {
        headers.entry(name).or_insert(value);
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
pub(crate) fn append(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
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
pub(crate) fn postpone(decision: &Decision, headers: &mut HeaderMap) {
    let Some(inside) = headers.get(header::RETRY_AFTER) else { return };
    let Some(inside) = inside.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else { return };
    let own = decision.states().filter(|state| state.remaining() == 0).map(|state| seconds(state.more_after())).max();
    if let Some(own) = own
        && own > inside
    {
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
