//! The way of a request that the layer rejects.

use http::{Response, request::Parts};
use tollgate::{Error, ErrorKind};

use super::{Profile, Shared};
use crate::{
    decisions::Decisions,
    headers::ResponseDetails,
    key::KeyError,
    metrics::LabelIndex,
    rate_limit::layer::{Admission, Verdict},
    rejection::{Reason, Rejection, Respond, add_headers},
};

impl<K, R> Shared<K, R> {
    pub(super) fn reject<B>(
        &self,
        reason: Reason<'_>,
        profile: Option<&Profile>,
        details: &ResponseDetails,
        parts: &Parts,
        labels: LabelIndex,
    ) -> Response<B>
    where
        R: Respond<B>,
    {
        self.record_rejection(reason, labels, &self.rpc_name(parts));
        let states = reason.states();
        let rejection = Rejection::new(reason, &states, details.jitter, parts);
        let mut response = self.gate.responder.respond(&rejection);
        self.add_to_rejection(&rejection, profile, details, &mut response);
        response
    }

    /// Adds to the response of the responder what it has not set.
    #[inline]
    pub(super) fn add_to_rejection<B>(
        &self,
        rejection: &Rejection<'_>,
        profile: Option<&Profile>,
        details: &ResponseDetails,
        response: &mut Response<B>,
    ) where
        R: Respond<B>,
    {
        let adds_retry_after = self.gate.responder.adds_retry_after(rejection);
        let writer = profile.map(|profile| &profile.headers);
        add_headers(rejection, writer, details, adds_retry_after, response.headers_mut());
        if self.options.exposes_decisions
            && let Some(decisions) = rejection.request().extensions.get::<Decisions>()
        {
            response.extensions_mut().insert(decisions.clone());
        }
    }

    #[cold]
    pub(super) fn judge_without_key<B>(&self, error: &KeyError, parts: &Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        self.judge_misconfigured(error, self.is_shadow_without_key(), parts)
    }

    #[cold]
    pub(super) fn judge_misconfigured<B>(&self, error: &KeyError, is_shadow: bool, parts: &Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        self.gate.log_misconfiguration(error, "requests cannot be rate limited");
        if is_shadow {
            return Verdict::Admit(Admission::EXEMPT);
        }
        self.reject_unchecked(Reason::of_key_error(error), parts)
    }

    /// Rejects a request without a check.
    pub(super) fn reject_unchecked<B>(&self, reason: Reason<'_>, parts: &Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let labels = LabelIndex::of(parts, &self.gate.labels);
        Verdict::Reject(self.reject(reason, None, &ResponseDetails::default(), parts, labels))
    }
}

/// Returns why a check without a decision rejects the request.
pub(super) fn reason_of(error: &Error) -> Reason<'_> {
    match error.kind() {
        ErrorKind::CostExceedsBurst => Reason::CostNeverFits(error),
        _ => Reason::Unavailable(error),
    }
}
