use std::fmt::Write as _;

use tollgate::Decision;
use tollgate_rules::{Code, Plan, RuleDecision};
use tonic::metadata::errors::InvalidMetadataKey;

use super::answer::{reset_after, whole_seconds};
use crate::proto::ratelimit::HeaderValue;

/// Names the header fields with the limit, the units that are left, and the seconds until units
/// return.
///
/// ```
/// use tollgate_envoy::LimitHeaderNames;
///
/// assert_eq!(LimitHeaderNames::default().remaining(), "RateLimit-Remaining");
/// assert!(LimitHeaderNames::new("X-Limit", "X-Left", "X-Reset").is_ok());
/// assert!(LimitHeaderNames::new("X Limit", "X-Left", "X-Reset").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitHeaderNames {
    limit: String,
    remaining: String,
    reset: String,
}

impl LimitHeaderNames {
    /// Creates the names.
    ///
    /// # Errors
    ///
    /// Fails when a name is not a valid name of a header field.
    pub fn new(
        limit: impl Into<String>,
        remaining: impl Into<String>,
        reset: impl Into<String>,
    ) -> Result<Self, InvalidMetadataKey> {
        let names = Self {
            limit: limit.into(),
            remaining: remaining.into(),
            reset: reset.into(),
        };
        for name in [&names.limit, &names.remaining, &names.reset] {
            tonic::metadata::AsciiMetadataKey::from_bytes(name.as_bytes())?;
        }
        Ok(names)
    }

    /// Returns the name for the limit.
    #[must_use]
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// Returns the name for the units that are left.
    #[must_use]
    pub fn remaining(&self) -> &str {
        &self.remaining
    }

    /// Returns the name for the seconds until units return.
    #[must_use]
    pub fn reset(&self) -> &str {
        &self.reset
    }
}

impl Default for LimitHeaderNames {
    /// Returns the names `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`.
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".to_owned(),
            remaining: "RateLimit-Remaining".to_owned(),
            reset: "RateLimit-Reset".to_owned(),
        }
    }
}

/// The header fields that a response gets.
#[derive(Clone, Debug, Default)]
pub(super) struct Headers {
    pub(super) names: Option<LimitHeaderNames>,
    pub(super) has_standard: bool,
}

impl Headers {
    pub(super) fn add(
        &self,
        fields: &mut Vec<HeaderValue>,
        plan: &Plan<'_>,
        decision: &RuleDecision,
    ) {
        if let Some(names) = &self.names {
            add_limit(fields, names, plan, decision);
        }
        if self.has_standard {
            add_standard(fields, decision);
        }
    }
}

fn add_limit(
    fields: &mut Vec<HeaderValue>,
    names: &LimitHeaderNames,
    plan: &Plan<'_>,
    decision: &RuleDecision,
) {
    let verdict = decision.verdict();
    let Some(status) = verdict.nearest() else {
        return;
    };
    let Some(limit) = status.limit() else { return };
    let reset = reset_after(status, plan.compat()).unwrap_or_default();
    fields.push(field(&names.limit, limit.requests()));
    fields.push(field(&names.remaining, status.remaining()));
    fields.push(field(&names.reset, whole_seconds(reset)));
}

/// Adds the policies that were checked. To a denial, it adds only the policies of the descriptors
/// that deny.
fn add_standard(fields: &mut Vec<HeaderValue>, decision: &RuleDecision) {
    let is_allowed = decision.is_allowed();
    let shown = decision
        .verdict()
        .statuses()
        .iter()
        .zip(decision.decisions());
    let shown = shown.filter(|(status, _)| is_allowed || status.code() == Code::OverLimit);
    let (mut policies, mut states) = (String::new(), String::new());
    for state in shown
        .filter_map(|(_, decision)| decision.as_ref())
        .flat_map(Decision::states)
    {
        let (name, quota) = (state.policy().name(), state.policy().quota());
        let gap = if policies.is_empty() { "" } else { ", " };
        let (window, reset) = (
            whole_seconds(quota.period()),
            whole_seconds(state.next_unit_after()),
        );
        // Writing to memory cannot fail. The name of a policy has no character that a text must
        // escape.
        let _ = write!(policies, "{gap}\"{name}\";q={};w={window}", quota.amount());
        let _ = write!(states, "{gap}\"{name}\";r={};t={reset}", state.remaining());
    }
    if !policies.is_empty() {
        fields.push(HeaderValue {
            key: "RateLimit-Policy".to_owned(),
            value: policies,
        });
        fields.push(HeaderValue {
            key: "RateLimit".to_owned(),
            value: states,
        });
    }
    if let Some(wait) = decision.retry_after() {
        fields.push(field("Retry-After", whole_seconds(wait).max(1)));
    }
}

fn field(name: &str, value: u64) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value: value.to_string(),
    }
}
