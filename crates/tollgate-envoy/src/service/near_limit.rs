//! Warns the service behind Envoy before its clients are denied.

use tollgate::{Decision, limiter::PolicyState};
use tollgate_rules::{Match, Plan, RuleDecision};
use tonic::metadata::errors::InvalidMetadataKey;

use super::headers::field;
use crate::proto::ratelimit::HeaderValue;

/// Describes the header field that a request gets when it passes near a limit.
///
/// ```
/// use tollgate_envoy::NearLimit;
///
/// let near = NearLimit::new("X-Near-Limit")?.share(0.9);
/// assert_eq!(near.name(), "X-Near-Limit");
/// assert!(NearLimit::new("X Near Limit").is_err());
/// # Ok::<(), tonic::metadata::errors::InvalidMetadataKey>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NearLimit {
    name: String,
    share: f64,
}

impl NearLimit {
    /// Names the header field. A request is near a limit of which more than four fifths are spent.
    ///
    /// # Errors
    ///
    /// Fails when the name is not a valid name of a header field.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidMetadataKey> {
        let name = name.into();
        tonic::metadata::AsciiMetadataKey::from_bytes(name.as_bytes())?;
        Ok(Self { name, share: 0.8 })
    }

    /// Sets the share of a limit above which requests are near it. The default is 0.8.
    ///
    /// # Panics
    ///
    /// Panics when the share is not between 0 and 1.
    #[must_use]
    pub fn share(mut self, share: f64) -> Self {
        assert!(
            (0.0..=1.0).contains(&share),
            "the share of a limit must be from 0 to 1, got {share}"
        );
        self.share = share;
        self
    }

    /// Returns the name of the header field.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds the field to a request that passes. Its value is the number of units that are left of
    /// the nearest limit, by its share.
    ///
    /// Limits in shadow mode deny nothing, so no request is near them. Hidden ones have no sign: the
    /// service may pass it on to its client.
    pub(super) fn add(
        &self,
        fields: &mut Vec<HeaderValue>,
        plan: &Plan<'_>,
        decision: &RuleDecision,
    ) {
        if decision.is_denied() {
            return;
        }
        let enforced = plan.iter().zip(decision.decisions());
        let enforced = enforced.filter(|(one, _)| !one.charged().is_some_and(Match::is_shadow));
        let states = enforced.flat_map(|(_, decided)| decided.iter().flat_map(Decision::states));
        let shown = states.filter(|state| !state.policy().is_hidden());
        let near = shown.filter(|state| spent_share(state) > self.share);
        let nearest = near.max_by(|one, other| spent_share(one).total_cmp(&spent_share(other)));
        fields.extend(nearest.map(|state| field(&self.name, state.remaining())));
    }
}

/// Returns the share of a limit that is spent.
fn spent_share(state: &PolicyState<'_>) -> f64 {
    let most = state.policy().quota().burst();
    most.saturating_sub(state.remaining()) as f64 / most as f64
}
