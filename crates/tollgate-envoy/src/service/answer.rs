//! Makes the response to a request.
//! Header fields are added in `headers.rs`, metadata is converted in `structs.rs`.

use std::time::{Duration, SystemTime};

use tollgate_rules::{Code, Compat, CurrentLimit, Plan, RuleDecision, Status, Unit};

use crate::proto::ratelimit::{
    RateLimitResponse,
    rate_limit_response::{self, DescriptorStatus, RateLimit, rate_limit},
};

/// Returns the response without header fields and metadata.
pub(super) fn response(plan: &Plan<'_>, decision: &RuleDecision) -> RateLimitResponse {
    let verdict = decision.verdict();
    RateLimitResponse {
        overall_code: code(verdict.code()),
        statuses: verdict
            .statuses()
            .iter()
            .map(|status| message(status, plan.compat()))
            .collect(),
        ..RateLimitResponse::default()
    }
}

fn message(status: &Status, compat: Compat) -> DescriptorStatus {
    DescriptorStatus {
        code: code(status.code()),
        current_limit: status.limit().map(limit),
        limit_remaining: saturated(status.remaining()),
        duration_until_reset: reset_after(status, compat)
            .and_then(|time| prost_types::Duration::try_from(time).ok()),
    }
}

pub(super) fn code(code: Code) -> i32 {
    let code = match code {
        Code::Ok => rate_limit_response::Code::Ok,
        Code::OverLimit => rate_limit_response::Code::OverLimit,
    };
    code.into()
}

fn limit(limit: &CurrentLimit) -> RateLimit {
    RateLimit {
        requests_per_unit: saturated(limit.requests()),
        unit: limit.unit().map_or(rate_limit::Unit::Unknown, unit).into(),
        name: limit.name().unwrap_or_default().to_owned(),
    }
}

fn unit(unit: Unit) -> rate_limit::Unit {
    match unit {
        Unit::Second => rate_limit::Unit::Second,
        Unit::Minute => rate_limit::Unit::Minute,
        Unit::Hour => rate_limit::Unit::Hour,
        Unit::Day => rate_limit::Unit::Day,
        Unit::Week => rate_limit::Unit::Week,
        Unit::Month => rate_limit::Unit::Month,
        Unit::Year => rate_limit::Unit::Year,
        _ => rate_limit::Unit::Unknown,
    }
}

/// Returns the largest number of the protocol for numbers beyond it.
fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the time until units return.
///
/// In the mode `envoy`, these are the whole seconds to the end of the window, also of one in which
/// nothing was spent.
pub(super) fn reset_after(status: &Status, compat: Compat) -> Option<Duration> {
    let exact = status.reset_after()?;
    if compat != Compat::Envoy {
        return Some(exact);
    }
    if exact.is_zero()
        && let Some(limit) = status.limit()
    {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let period = limit.period().as_secs().max(1);
        return Some(Duration::from_secs(period - now % period));
    }
    Some(Duration::from_secs(whole_seconds(exact)))
}

/// Returns whole seconds, rounded up.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
