//! Builds `google.rpc.Status` messages and their details.
//! Which of them a rejection gets is decided in `grpc_status.rs`.

use std::{borrow::Cow, collections::HashMap, time::Duration};

use tollgate::{Decision, limiter::PolicyState, permits::PermitDenied};
use tonic::{
    Code, Status,
    metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap},
};
use tonic_types::{ErrorDetail, ErrorInfo, QuotaFailure, QuotaViolation, RetryInfo, StatusExt};

/// The metadata entry of gRFC A6.
const PUSHBACK: &str = "grpc-retry-pushback-ms";
const DO_NOT_RETRY: i32 = -1;

/// Has the options of a status, and builds the status of each kind of rejection.
#[derive(Clone)]
pub(super) struct StatusTemplate {
    pub(super) code: Code,
    pub(super) domain: Cow<'static, str>,
    pub(super) subject: Option<Cow<'static, str>>,
    pub(super) pushback: bool,
}

impl StatusTemplate {
    pub(super) const fn new() -> Self {
        Self {
            code: Code::ResourceExhausted,
            domain: Cow::Borrowed("tollgate"),
            subject: None,
            pushback: false,
        }
    }

    pub(super) fn denied(&self, decision: &Decision) -> Status {
        if decision.is_blocked() {
            return self.blocked();
        }
        let states: Vec<_> = decision.states().collect();
        self.denied_for(
            decision,
            &states,
            decision.retry_after().unwrap_or_default(),
        )
    }

    /// Returns the status of a denial whose caller comes back after `retry_after`. `states` are
    /// those of all limits that deny, and `decision` is the one that the caller waits for.
    pub(super) fn denied_for(
        &self,
        decision: &Decision,
        states: &[PolicyState<'_>],
        retry_after: Duration,
    ) -> Status {
        // A set has at most eight policies, and as many violations fit the header list of any
        // client. Those that are hidden stand in no response.
        let is_shown = |state: &PolicyState<'_>| !state.policy().is_hidden();
        let exceeded = states.iter().filter(|state| state.is_exceeded());
        let shown = exceeded.filter(|state| is_shown(state)).take(8);
        let violations: Vec<_> = shown.map(|state| self.violation(state)).collect();
        let strictest = decision.strictest().filter(is_shown);
        let policy = strictest.map(|state| ("policy".to_owned(), state.policy().name().to_owned()));
        let is_hidden = violations.is_empty() && states.iter().any(|state| !is_shown(state));
        let failure = (!is_hidden).then(|| QuotaFailure::new(violations).into());
        let details = [
            Some(ErrorDetail::from(RetryInfo::new(Some(retry_after)))),
            failure,
            Some(self.error_info("RATE_LIMIT_EXCEEDED", policy.into_iter().collect())),
        ];
        let details = details.into_iter().flatten();
        self.status(self.code, "rate limit exceeded", details, Some(retry_after))
    }

    /// Returns the status of a call whose key has too many calls in flight. The wait is an
    /// estimate.
    pub(super) fn no_permit(&self, denied: &PermitDenied, retry_after: Duration) -> Status {
        let (name, limit) = (denied.name(), denied.limit());
        let subject = self
            .subject
            .as_deref()
            .map_or_else(|| format!("policy:{name}"), str::to_owned);
        let mut violation =
            QuotaViolation::new(subject, format!("{name}: {limit} calls at the same time"));
        "concurrent-requests".clone_into(&mut violation.quota_metric);
        name.clone_into(&mut violation.quota_id);
        violation.quota_value = limit.into();
        let policy = HashMap::from([("policy".to_owned(), name.to_owned())]);
        let details = [
            ErrorDetail::from(RetryInfo::new(Some(retry_after))),
            QuotaFailure::new([violation]).into(),
            self.error_info("CONCURRENCY_LIMIT_EXCEEDED", policy),
        ];
        self.status(
            self.code,
            "concurrency limit exceeded",
            details,
            Some(retry_after),
        )
    }

    /// Returns the status of a call that no wait lets pass.
    pub(super) fn blocked(&self) -> Status {
        let details = [self.error_info("RATE_LIMIT_EXCEEDED", HashMap::new())];
        self.status(self.code, "rate limit exceeded", details, None)
    }

    pub(super) fn cost_never_fits(&self) -> Status {
        let details = [self.error_info("COST_EXCEEDS_LIMIT", HashMap::new())];
        self.status(
            self.code,
            "the call costs more than its rate limit can ever allow",
            details,
            None,
        )
    }

    pub(super) fn unavailable(&self) -> Status {
        let details = [self.error_info("LIMITER_UNAVAILABLE", HashMap::new())];
        Status::with_error_details_vec(Code::Unavailable, "rate limiter unavailable", details)
    }

    /// Returns the status of a call that an adaptive limiter has shed.
    pub(super) fn overloaded(&self, retry_after: Duration) -> Status {
        let details = [
            ErrorDetail::from(RetryInfo::new(Some(retry_after))),
            self.error_info("SERVICE_OVERLOADED", HashMap::new()),
        ];
        self.status(
            Code::Unavailable,
            "service overloaded",
            details,
            Some(retry_after),
        )
    }

    /// Returns a status with the entry for retries, if it is on. Without a time, the client does
    /// not retry.
    fn status(
        &self,
        code: Code,
        message: &str,
        details: impl IntoIterator<Item = ErrorDetail>,
        retry_after: Option<Duration>,
    ) -> Status {
        let mut metadata = MetadataMap::new();
        if self.pushback {
            let pushback_ms = retry_after.map_or(DO_NOT_RETRY, pushback_ms);
            metadata.insert(
                AsciiMetadataKey::from_static(PUSHBACK),
                AsciiMetadataValue::from(pushback_ms),
            );
        }
        Status::with_error_details_vec_and_metadata(code, message, details, metadata)
    }

    fn violation(&self, state: &PolicyState<'_>) -> QuotaViolation {
        let policy = state.policy();
        let (name, quota) = (policy.name(), policy.quota());
        let mut description = format!("{name}: {} per {:?}", quota.amount(), quota.period());
        if quota.burst() != quota.amount() {
            description += &format!(", {} at once", quota.burst());
        }
        let subject = self
            .subject
            .as_deref()
            .map_or_else(|| format!("policy:{name}"), str::to_owned);
        let mut violation = QuotaViolation::new(subject, description);
        "requests".clone_into(&mut violation.quota_metric);
        name.clone_into(&mut violation.quota_id);
        violation.quota_value = quota.amount().cast_signed();
        violation
    }

    fn error_info(&self, reason: &str, metadata: HashMap<String, String>) -> ErrorDetail {
        ErrorInfo::new(reason, self.domain.clone(), metadata).into()
    }
}

/// Converts a wait to milliseconds: rounded up, and at most what the field holds (24.8 days).
fn pushback_ms(retry_after: Duration) -> i32 {
    i32::try_from(retry_after.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pushback_is_rounded_up_and_capped() {
        assert_eq!(pushback_ms(Duration::from_micros(1)), 1);
        assert_eq!(pushback_ms(Duration::from_millis(2500)), 2500);
        assert_eq!(pushback_ms(Duration::from_micros(2_500_001)), 2501);
        assert_eq!(pushback_ms(Duration::from_secs(60 * 86_400)), i32::MAX);
    }
}
