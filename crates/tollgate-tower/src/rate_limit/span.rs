//! Records decisions in the span of a request, for traces.
//! Counts are in `metrics.rs` beside the root, and log lines in `limits.rs`. No value comes from a client.

use tollgate_core::Decision;
use tracing::Span;

const DECISION: &str = "rate_limit.decision";
const POLICY: &str = "rate_limit.policy";
const DECIDED_BY: &str = "rate_limit.decided_by";

/// Records the decision that the answer to a request reports. In shadow mode it denies nothing.
#[cold]
pub(super) fn record_decision(decision: &Decision, is_shadow: bool) {
    let span = Span::current();
    let outcome = match (decision.is_allowed(), is_shadow) {
        (true, _) => "allowed",
        (false, true) => "shadowed",
        (false, false) => "denied",
    };
    span.record(DECISION, outcome);
    if let Some(strictest) = decision.strictest() {
        span.record(POLICY, strictest.policy().name());
    }
    let is_degraded = decision.degraded().is_some();
    span.record(DECIDED_BY, if is_degraded { "outage" } else { "store" });
}

/// Records why a request is rejected without a decision.
#[cold]
pub(super) fn record_rejection(reason: &'static str) {
    Span::current().record(DECISION, reason);
}
