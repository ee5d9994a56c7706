//! The way of a request that several limits decide together.

use std::{collections::HashSet, sync::Arc, time::Duration};

use http::{Response, request::Parts};
use smallvec::SmallVec;
use tollgate::{Cost, Decision, Error, ErrorKind, Priority, limiter::PolicyState};

use super::{Profile, Shared, reject::reason_of};
use crate::{
    charge::{Charge, Charged},
    decisions::Decisions,
    headers::ResponseDetails,
    key::{KeyError, KeyExtractor},
    metrics::LabelIndex,
    outer_layers::OuterWait,
    rate_limit::{
        builder::CostOf,
        joint::{JointCheck, JointDecision, after_queues},
        layer::{Admission, Extras, Step, Verdict},
    },
    rejection::{Reason, Rejection, Respond},
};

impl<K: KeyExtractor, R> Shared<K, R> {
    /// Lets a decider decide a request.
    // Not inlined: a request with a fixed limiter would pay for the larger stack frame.
    #[inline(never)]
    pub(super) fn decide<B>(self: &Arc<Self>, at: usize, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let (cost, priority) = match &self.options.cost {
            None => (Cost::ONE, Priority::CRITICAL),
            Some(CostOf::One(cost)) => (cost(parts), Priority::CRITICAL),
            // One cost with a priority, or costs of policies that are not known here.
            Some(CostOf::Each(costs)) => {
                let costs = costs(parts);
                (costs.cost_of("").unwrap_or(Cost::ONE), costs.priority())
            }
            Some(CostOf::Estimate(estimate, _)) => (Cost::ONE, estimate(parts).priority()),
        };
        let check = JointCheck::new(cost, priority, self.options.enforcement.as_ref());
        let after_queues = |decision| after_queues(decision, self.options.enforcement.clone());
        match self.deciders[at].decide(parts, check).map(|decision| after_queues(decision).into_ready()) {
            Ok(Ok(result)) => self.judge_joint(result, parts),
            Ok(Err(pending)) => Verdict::Wait(Step::Decide(pending)),
            Err(error) => self.judge_without_key(&error, parts),
        }
    }

    /// Turns the decision of a decider into a verdict.
    #[inline(never)]
    pub(crate) fn judge_joint<B>(
        self: &Arc<Self>,
        result: Result<Option<JointDecision>, Error>,
        parts: &mut Parts,
    ) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let options = &self.options;
        let joint = match result {
            Ok(Some(joint)) => joint,
            Ok(None) => return Verdict::Admit(Admission::EXEMPT),
            Err(error) if error.kind() == ErrorKind::Config => {
                let error = KeyError::misconfigured(error.to_string());
                return self.judge_misconfigured(&error, self.is_shadow_without_key(), parts);
            }
            Err(error) if self.is_shadow_without_key() => {
                tracing::debug!(%error, "no decision, the request passes in shadow mode");
                return Verdict::Admit(Admission::EXEMPT);
            }
            Err(error) => return self.reject_unchecked(reason_of(&error), parts),
        };
        match joint.refused() {
            Some((key, _)) if self.is_shadow(key) => {
                tracing::debug!("no wait helps the client, the request passes in shadow mode");
                return Verdict::Admit(Admission::EXEMPT);
            }
            Some((_, reason)) => return self.reject_unchecked(reason, parts),
            None => {}
        }
        let (labels, rpc) = (LabelIndex::of(parts, &self.gate.labels), self.rpc_name(parts));
        for part in joint.all() {
            let profile = self.profile_of(&part.decision);
            let is_shadow = part.is_shadow || !part.is_enforced;
            self.record_decision(&profile, &part.decision, labels, &rpc, is_shadow);
        }
        let mut decisions = None;
        if options.exposes_decisions {
            for decision in joint.decisions() {
                decisions = Some(Decisions::append(decision, &mut parts.extensions));
            }
        }
        let details = self.details(None);
        // A denial without decisions is of no key.
        let has_key = joint.parts().next().is_some();
        let is_enforced = if has_key { joint.enforced().next().is_some() } else { !self.is_shadow_without_key() };
        if !joint.is_allowed() && is_enforced {
            return Verdict::Reject(self.reject_joint(&joint, &details, parts, labels));
        }
        let mut headers = Vec::new();
        // A denial that passes in shadow mode has none.
        for decision in joint.enforced() {
            let update = self.profile_of(decision).headers.update(decision, decision.states(), &details);
            if update.is_spent() && options.final_cost.is_none() {
                OuterWait::store(decision, details.jitter, &mut parts.extensions);
            }
            headers.push(update);
        }
        let charge = options.final_cost.as_ref().filter(|_| joint.is_allowed()).map(|final_cost| {
            let charged = joint.all().iter().filter(|part| part.decision.is_allowed()).map(|part| Charged {
                limiter: part.limiter.clone(),
                key: part.key.clone(),
                decision: part.decision.clone(),
            });
            Charge::new(charged.collect(), None, final_cost.clone())
        });
        Verdict::Admit(Admission::with_extras(Box::new(Extras { charge, decisions, headers, ..Extras::default() })))
    }

    /// Builds the response to a request that several limits deny.
    ///
    /// It reports the decision with the longest wait as if that limiter alone denied. The header fields list the policies
    /// of the others too.
    fn reject_joint<B>(
        &self,
        joint: &JointDecision,
        details: &ResponseDetails,
        parts: &Parts,
        labels: LabelIndex,
    ) -> Response<B>
    where
        R: Respond<B>,
    {
        let awaited = joint.enforced().enumerate().max_by_key(|(_, decision)| wait_of(decision));
        // A limit that blocks is not waited for.
        let Some((at, awaited)) = awaited.filter(|_| !joint.enforced().any(Decision::is_blocked)) else {
            return self.reject(Reason::Blocked, None, details, parts, labels);
        };
        let others: Vec<_> =
            joint.enforced().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other).collect();
        // The states of the awaited decision come first: the header fields of a response are those of the first states.
        let mut states = SmallVec::<[PolicyState<'_>; 4]>::new();
        let mut names = HashSet::new();
        for decision in [awaited].into_iter().chain(others.iter().copied()) {
            let is_first = states.is_empty();
            states.extend(decision.states().filter(|state| names.insert(state.policy().name()) || is_first));
        }
        let profile = self.profile_of(awaited);
        let rejection = Rejection::new(Reason::Denied(awaited), &states, details.jitter, parts);
        self.record_rejection(rejection.reason(), labels, &self.rpc_name(parts));
        let mut response = self.gate.responder.respond(&rejection);
        // Header fields that the responder has set stay as they are.
        let has_own = self.options.headers.formats.own_names().any(|name| response.headers().contains_key(name));
        self.add_to_rejection(&rejection, Some(&profile), details, &mut response);
        if !has_own {
            for other in others {
                let mut update = self.profile_of(other).headers.update(other, other.states(), details);
                update.add_to(response.headers_mut());
            }
        }
        response
    }

    fn profile_of(&self, decision: &Decision) -> Arc<Profile> {
        self.profiles.of(decision.policies(), &self.options.headers, &self.gate.labels)
    }
}

/// Returns how long the client has to wait for the units of a decision that denies.
fn wait_of(decision: &Decision) -> Option<Duration> {
    decision.retry_after().or_else(|| {
        // A check of no units denies nothing itself: the limit is spent.
        let spent = decision.states().filter(|state| state.remaining() == 0);
        spent.map(|state| state.more_after()).max()
    })
}
