//! The header fields that an answer asks Envoy to add to its response.
//! The code and the status of each descriptor are in `answer.rs`.

use std::{cmp::Reverse, fmt::Write as _};

use tollgate::{Decision, limiter::PolicyState};
use tollgate_rules::{Code, Match, Plan, RuleDecision};
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
            add_standard(fields, plan, decision);
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

/// Adds the policies of the descriptors that pass. To a denial, it adds only those of the
/// descriptors that deny.
///
/// Limits in shadow mode and hidden ones are omitted, and so are quotas over their limit that do not deny. A policy
/// that limits several descriptors stands once, with its strictest state.
fn add_standard(fields: &mut Vec<HeaderValue>, plan: &Plan<'_>, decision: &RuleDecision) {
    let statuses = decision.verdict().statuses();
    let mut shown: Vec<PolicyState<'_>> = Vec::new();
    for ((planned, status), decided) in plan.iter().zip(statuses).zip(decision.decisions()) {
        let passes = status.code() == Code::Ok;
        let is_shadow = planned.charged().is_some_and(Match::is_shadow);
        if is_shadow || passes != decision.is_allowed() {
            continue;
        }
        let states = decided.iter().flat_map(Decision::states);
        for state in states.filter(|state| !state.policy().is_hidden()) {
            let name = state.policy().name();
            let same = shown.iter_mut().find(|held| held.policy().name() == name);
            match same {
                Some(held) => *held = stricter(*held, state),
                None => shown.push(state),
            }
        }
    }
    let (mut policies, mut states) = (String::new(), String::new());
    for state in shown {
        let name = state.policy().name();
        let gap = if policies.is_empty() { "" } else { ", " };
        let (units, window) = state.policy().units_and_window();
        let window = whole_seconds(window);
        let reset = whole_seconds(state.next_unit_after());
        // Writing to memory cannot fail. The name of a policy has no character that a text must
        // escape.
        let _ = write!(policies, "{gap}\"{name}\";q={units};w={window}");
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

/// Returns the stricter one of two states: a longer wait is stricter, and then fewer units left.
fn stricter<'a>(first: PolicyState<'a>, second: PolicyState<'a>) -> PolicyState<'a> {
    let strictness = |state: &PolicyState<'_>| {
        let is_spent = state.remaining() == 0;
        let wait = is_spent.then(|| state.next_unit_after());
        (wait, Reverse(state.remaining()))
    };
    if strictness(&second) > strictness(&first) {
        second
    } else {
        first
    }
}

pub(super) fn field(name: &str, value: u64) -> HeaderValue {
    HeaderValue {
        key: name.to_owned(),
        value: value.to_string(),
    }
}
