//! Replies to a request: turns the decision into a verdict, and builds the response to a request that
//! is rejected.
//! What asks the store comes before, in `ask.rs`. The body of a rejection is built in `rejection/`.

use std::{sync::Arc, time::Duration};

use http::{Response, request::Parts};
use smallvec::SmallVec;
use tollgate_core::{Cost, Decision, Error, ErrorKind};

use crate::{
    charge::{Charged, UnsettledCharge},
    decisions::Decisions,
    headers::{HeaderUpdate, ResponseDetails},
    key::KeyError,
    metrics::LabelIndex,
    outer_layers::OuterWait,
    rate_limit::{
        joint::{JointDecision, Part},
        limits::{LimitRef, Profile, Steps},
        options::RequestLimiterSource,
        request::{Admission, Asked, Deferred, RequestContext, StepVerdict},
        request_limiter::RequestLimiter,
        reservation::{HeldReservation, MeteredReservation},
        span,
    },
    rejection::{Reason, Rejection, add_headers},
};

/// A decision that denies a request, and what the layer keeps for its policies.
pub(super) type Denial<'a> = (&'a Decision, Arc<Profile>);

/// Lists the decisions of a request that several limits decide, without those in shadow mode.
type Enforced<'a> = SmallVec<[Denial<'a>; 4]>;

impl<B: 'static> Steps<'_, B> {
    /// Turns the result of a check into a verdict.
    // Inlined by force, as `begin` is.
    #[inline(always)]
    pub(super) fn judge(
        self,
        result: Result<&Decision, &Error>,
        context: &mut RequestContext,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        let (limits, options) = (self.limits, &self.limits.options);
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => return self.judge_error(error, context, parts),
        };
        let &mut RequestContext {
            ref limit,
            ref key,
            asked,
            is_shadow,
            labels,
            ..
        } = context;
        let profile = limit.get(&limits.fixed).profile;
        let details = limits.details(key.as_deref());
        let decisions = self.expose_decision(decision, parts);
        let rpc = limits.rpc_name(parts);
        limits.record_decision(profile, decision, labels, &rpc, is_shadow);
        if options.records_spans {
            span::record_decision(decision, is_shadow);
        }
        if decision.is_denied() && !is_shadow {
            let reason = Reason::of_denial(decision);
            return StepVerdict::Reject(self.reject(
                reason,
                Some(profile),
                &[],
                &details,
                parts,
                labels,
            ));
        }
        self.expose_limiter(context, parts);
        let headers = match is_shadow {
            true => HeaderUpdate::EMPTY,
            false => self.headers(profile, decision, &details, parts),
        };
        let is_charged =
            options.final_cost.is_some() && asked != Asked::Estimate && decision.is_allowed();
        let deferred = (is_charged || decisions.is_some())
            .then(|| self.deferred(decision, is_charged, context, decisions));
        StepVerdict::Admit(Admission::new(headers, deferred))
    }

    /// Turns the error of a check into a verdict.
    #[cold]
    fn judge_error(
        self,
        error: &Error,
        context: &RequestContext,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        let is_misconfigured = match error.kind() {
            ErrorKind::KeyLevels | ErrorKind::CrossSlot => true,
            ErrorKind::Config => context.asked != Asked::One,
            ErrorKind::Unsupported => context.asked == Asked::Estimate,
            _ => false,
        };
        if context.is_shadow {
            self.expose_limiter(context, parts);
        }
        let profile = context.limit.get(&self.limits.fixed).profile;
        let profile = (!is_misconfigured).then_some(profile);
        self.without_decision(error, is_misconfigured, profile, context.is_shadow, parts)
    }

    /// Turns an error into a verdict: that of a wrong set-up, or that of a store without an answer.
    #[cold]
    pub(super) fn without_decision(
        self,
        error: &Error,
        is_misconfigured: bool,
        profile: Option<&Profile>,
        is_shadow: bool,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        let of_set_up;
        let reason = if is_misconfigured {
            of_set_up = KeyError::misconfigured(error.to_string());
            Reason::Misconfigured(&of_set_up)
        } else {
            Reason::of_error(error)
        };
        self.undecided(reason, profile, is_shadow, parts)
    }

    /// Turns the result of a reservation into a verdict. A request that is admitted has a meter.
    #[inline(never)]
    pub(super) fn judge_reservation(
        self,
        result: Result<HeldReservation, Error>,
        context: &mut RequestContext,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        let mut verdict = self.judge(
            result.as_ref().map(HeldReservation::decision),
            context,
            parts,
        );
        if let StepVerdict::Admit(admission) = &mut verdict {
            let limiter = context.limit.get(&self.limits.fixed).limiter;
            let reservation = MeteredReservation::new(limiter, result.ok());
            parts.extensions.insert(reservation.meter().clone());
            admission.hold(reservation);
        }
        verdict
    }

    /// Turns the decision of several limits into a verdict.
    #[inline(never)]
    pub(super) fn judge_joint(
        self,
        result: Result<Option<JointDecision>, Error>,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        let (limits, options) = (self.limits, &self.limits.options);
        let joint = match result {
            Ok(Some(joint)) => joint,
            Ok(None) => return self.exempt(parts),
            Err(error) => {
                let is_misconfigured = error.kind() == ErrorKind::Config;
                let is_shadow = limits.is_shadow_without_key();
                return self.without_decision(&error, is_misconfigured, None, is_shadow, parts);
            }
        };
        if let Some((key, reason)) = joint.refused() {
            return self.undecided(reason, None, limits.is_shadow(key), parts);
        }
        let labels = LabelIndex::of(parts, &limits.gate.labels);
        let (mut enforced, mut decisions) = (Enforced::new(), None);
        for part in joint.all() {
            let decision = &part.charged.decision;
            let profile = limits.profile_of(decision.policies());
            let (is_shadow, rpc) = (!part.is_enforced(), limits.rpc_name(parts));
            limits.record_decision(&profile, decision, labels, &rpc, is_shadow);
            if !part.is_shadow {
                decisions = self.expose_decision(decision, parts);
            }
            if !is_shadow {
                enforced.push((decision, profile));
            }
        }
        if options.records_spans {
            record_joint(&joint);
        }
        let details = limits.details(None);
        // A denial without decisions is of no key.
        let denies = match joint.decisions().next() {
            Some(_) => !enforced.is_empty(),
            None => !limits.is_shadow_without_key(),
        };
        if !joint.is_allowed() && denies {
            return self.deny_joint(enforced, &details, parts, labels);
        }
        let headers = enforced
            .iter()
            .map(|(decision, profile)| self.headers(profile, decision, &details, parts))
            .collect();
        let final_cost = options.final_cost.as_ref().filter(|_| joint.is_allowed());
        let charge = final_cost.map(|final_cost| {
            let charged = joint.all().iter().map(|part| &part.charged);
            let charged = charged.filter(|charged| charged.decision.is_allowed());
            UnsettledCharge::new(charged.cloned().collect(), None, final_cost.clone())
        });
        let deferred = Deferred {
            charge,
            decisions,
            headers,
            reservation: None,
        };
        StepVerdict::Admit(Admission::new(
            HeaderUpdate::EMPTY,
            Some(Box::new(deferred)),
        ))
    }

    /// Rejects a request that some of several limits deny. The response reports the decision with
    /// the longest wait. A limit that blocks is not waited for.
    fn deny_joint(
        self,
        mut enforced: Enforced<'_>,
        details: &ResponseDetails,
        parts: &Parts,
        labels: LabelIndex,
    ) -> StepVerdict<B> {
        let blocks = enforced.iter().any(|(decision, _)| decision.is_blocked());
        let awaited = (0..enforced.len()).max_by_key(|at| wait_of(enforced[*at].0));
        let (reason, profile) = match awaited.filter(|_| !blocks) {
            Some(at) => {
                let (decision, profile) = enforced.remove(at);
                (Reason::Denied(decision), Some(profile))
            }
            None => {
                enforced.clear();
                (Reason::Blocked, None)
            }
        };
        StepVerdict::Reject(self.reject(
            reason,
            profile.as_deref(),
            &enforced,
            details,
            parts,
            labels,
        ))
    }

    /// Appends a decision to those of the outer layers, where the layer exposes its decisions.
    #[inline]
    fn expose_decision(self, decision: &Decision, parts: &mut Parts) -> Option<Decisions> {
        let exposes = self.limits.options.exposes_decisions;
        exposes.then(|| Decisions::append(decision, &mut parts.extensions))
    }

    /// Returns the header fields of a decision that does not deny the request, and stores its wait
    /// for the layers inside.
    // Inlined by force, as `begin` is.
    #[inline(always)]
    fn headers(
        self,
        profile: &Profile,
        decision: &Decision,
        details: &ResponseDetails,
        parts: &mut Parts,
    ) -> HeaderUpdate {
        let headers = profile.headers.update(decision, decision.states(), details);
        // A layer that may give the units back raises the wait in the response, once it knows.
        if headers.is_spent() && self.limits.options.final_cost.is_none() {
            OuterWait::store(decision, details.jitter, &mut parts.extensions);
        }
        headers
    }

    #[cold]
    pub(super) fn judge_without_key(self, error: &KeyError, parts: &mut Parts) -> StepVerdict<B> {
        self.undecided(
            Reason::of_key_error(error),
            None,
            self.limits.is_shadow_without_key(),
            parts,
        )
    }

    /// Lets a request without a decision pass in shadow mode, and rejects it otherwise.
    #[cold]
    pub(super) fn undecided(
        self,
        reason: Reason<'_>,
        profile: Option<&Profile>,
        is_shadow: bool,
        parts: &mut Parts,
    ) -> StepVerdict<B> {
        if let Reason::Misconfigured(error) = reason {
            self.limits
                .gate
                .log_misconfiguration(error, "requests cannot be rate limited");
        }
        if is_shadow {
            tracing::debug!(?reason, "no decision, the request passes in shadow mode");
            return self.exempt(parts);
        }
        let labels = LabelIndex::of(parts, &self.limits.gate.labels);
        StepVerdict::Reject(self.reject(
            reason,
            profile,
            &[],
            &ResponseDetails::default(),
            parts,
            labels,
        ))
    }

    /// Returns what is deferred to the response, besides the headers.
    // Not inlined: a charge is large, and the many layers without one would move it.
    #[inline(never)]
    fn deferred(
        self,
        decision: &Decision,
        is_charged: bool,
        context: &mut RequestContext,
        decisions: Option<Decisions>,
    ) -> Box<Deferred> {
        let RequestContext {
            limit, key, due, ..
        } = context;
        let options = &self.limits.options;
        let key = key.take().filter(|_| is_charged);
        let charge = options
            .final_cost
            .as_ref()
            .zip(key)
            .map(|(final_cost, key)| {
                // A look that admits a request has charged nothing.
                let due =
                    (options.charges_after && decision.cost() == Cost::ZERO).then(|| due.clone());
                let limiter = limit.get(&self.limits.fixed).limiter.clone();
                let charged = Charged {
                    limiter,
                    key: *key,
                    decision: decision.clone(),
                };
                UnsettledCharge::new([charged].into_iter().collect(), due, final_cost.clone())
            });
        Box::new(Deferred {
            charge,
            decisions,
            ..Deferred::default()
        })
    }

    /// Gives a request the limiter that its service charges further units with, where the layer
    /// does so.
    #[inline]
    fn expose_limiter(self, context: &RequestContext, parts: &mut Parts) {
        if let (Some(source), Some(key)) = (self.limits.options.request_limiter, &context.key) {
            let limit = match source {
                RequestLimiterSource::Same => context.limit.clone(),
                RequestLimiterSource::At(own) => LimitRef::Fixed(own),
            };
            let key = (**key).clone();
            let limiter = RequestLimiter::of(self.limits, limit, key, context.labels, parts);
            parts.extensions.insert(limiter);
        }
    }

    /// Builds the response to a rejected request.
    ///
    /// When several limits deny a request, `others` are those beside the one of the reason: the
    /// header fields list their policies too.
    pub(super) fn reject(
        self,
        reason: Reason<'_>,
        profile: Option<&Profile>,
        others: &[Denial<'_>],
        details: &ResponseDetails,
        parts: &Parts,
        labels: LabelIndex,
    ) -> Response<B> {
        self.limits
            .record_rejection(reason, labels, &self.limits.rpc_name(parts));
        let mut states = reason.states();
        for state in others.iter().flat_map(|(other, _)| other.states()) {
            if states
                .iter()
                .all(|held| held.policy().name() != state.policy().name())
            {
                states.push(state);
            }
        }
        let rejection = Rejection::new(reason, &states, details.jitter, parts);
        let mut response = self.responder.respond(&rejection);
        // Header fields that the responder has set stay as they are.
        let mut own_names = self.limits.options.headers.formats.own_names();
        let has_own =
            !others.is_empty() && own_names.any(|name| response.headers().contains_key(name));
        let adds_retry_after = self.responder.adds_retry_after(&rejection);
        let writer = profile.map(|profile| &profile.headers);
        add_headers(
            &rejection,
            writer,
            details,
            adds_retry_after,
            response.headers_mut(),
        );
        if self.limits.options.exposes_decisions
            && let Some(decisions) = parts.extensions.get::<Decisions>()
        {
            response.extensions_mut().insert(decisions.clone());
        }
        for (other, profile) in others.iter().filter(|_| !has_own) {
            profile
                .headers
                .update(other, other.states(), details)
                .add_to(response.headers_mut());
        }
        response
    }
}

/// Records the decision that the answer of several limits is: of those that are enforced and deny, the
/// one with the longest wait.
#[cold]
fn record_joint(joint: &JointDecision) {
    let place = |part: &&Part| {
        let decision = &part.charged.decision;
        (
            part.is_enforced() && decision.is_denied(),
            decision.is_denied(),
            part.is_enforced(),
            wait_of(decision),
        )
    };
    if let Some(part) = joint.all().iter().max_by_key(place) {
        span::record_decision(&part.charged.decision, !part.is_enforced());
    }
}

/// Returns how long the client has to wait for the units of a decision that denies.
fn wait_of(decision: &Decision) -> Option<Duration> {
    decision.retry_after().or_else(|| {
        // A check of no units denies nothing itself: the limit is spent.
        let spent = decision.states().filter(|state| state.remaining() == 0);
        spent.map(|state| state.next_unit_after()).max()
    })
}
