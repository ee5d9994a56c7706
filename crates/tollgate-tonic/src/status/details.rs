//! `google.rpc.Status` and what stands in its details.

use std::{collections::HashMap, time::Duration};

use tollgate::{Decision, PolicyState};
use tonic::{
    Status,
    metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap},
};
use tonic_types::{ErrorDetail, ErrorInfo, QuotaFailure, QuotaViolation, RetryInfo, StatusExt};

use super::GrpcStatus;

/// gRFC A6.
const PUSHBACK: &str = "grpc-retry-pushback-ms";
const DO_NOT_RETRY: i32 = -1;

impl<H> GrpcStatus<H> {
    pub(super) fn denied(&self, decision: &Decision) -> Status {
        let retry_after = decision.retry_after().unwrap_or_default();
        // A set has no more than eight policies, so the whole fits the header list of any peer.
        let exceeded = decision.states().filter(|state| state.is_exceeded());
        let violations: Vec<_> = exceeded.map(|state| self.violation(&state)).collect();
        let policy = decision.binding().map(|state| ("policy".to_owned(), state.policy().name().to_owned()));
        let details = [
            ErrorDetail::from(RetryInfo::new(Some(retry_after))),
            QuotaFailure::new(violations).into(),
            self.info("RATE_LIMIT_EXCEEDED", policy.into_iter().collect()),
        ];
        let pushback = self.pushback.then(|| milliseconds(retry_after));
        Status::with_error_details_vec_and_metadata(self.code, "rate limit exceeded", details, trailer(pushback))
    }

    pub(super) fn cost_never_fits(&self) -> Status {
        let details = [self.info("COST_EXCEEDS_LIMIT", HashMap::new())];
        let message = "the call costs more than a rate limit ever lets pass";
        let pushback = self.pushback.then_some(DO_NOT_RETRY);
        Status::with_error_details_vec_and_metadata(self.code, message, details, trailer(pushback))
    }

    pub(super) fn unavailable(&self) -> Status {
        let details = [self.info("LIMITER_UNAVAILABLE", HashMap::new())];
        Status::with_error_details_vec(tonic::Code::Unavailable, "rate limiter unavailable", details)
    }

    fn violation(&self, state: &PolicyState<'_>) -> QuotaViolation {
        let policy = state.policy();
        let (name, quota) = (policy.name(), policy.quota());
        let mut description = format!("{name}: {} per {:?}", quota.amount(), quota.period());
        if quota.burst() != quota.amount() {
            description += &format!(", {} at once", quota.burst());
        }
        let subject = self.subject.as_deref().map_or_else(|| format!("policy:{name}"), str::to_owned);
        let mut violation = QuotaViolation::new(subject, description);
        "requests".clone_into(&mut violation.quota_metric);
        name.clone_into(&mut violation.quota_id);
        violation.quota_value = quota.amount().into();
        violation
    }

    fn info(&self, reason: &str, metadata: HashMap<String, String>) -> ErrorDetail {
        ErrorInfo::new(reason, self.domain.clone(), metadata).into()
    }
}

/// Rounded up, and capped at what the field holds: 24.8 days.
fn milliseconds(retry_after: Duration) -> i32 {
    i32::try_from(retry_after.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

fn trailer(pushback: Option<i32>) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    if let Some(pushback) = pushback {
        metadata.insert(AsciiMetadataKey::from_static(PUSHBACK), AsciiMetadataValue::from(pushback));
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pushback_is_rounded_up_and_capped() {
        assert_eq!(milliseconds(Duration::from_micros(1)), 1);
        assert_eq!(milliseconds(Duration::from_millis(2500)), 2500);
        assert_eq!(milliseconds(Duration::from_micros(2_500_001)), 2501);
        assert_eq!(milliseconds(Duration::from_secs(60 * 86_400)), i32::MAX);
    }
}
