//! The way of a request: from its head to a verdict.

use std::sync::Arc;

use http::request::Parts;
use tollgate::{Cost, Costs, Decision, Error, ErrorKind, Key, Limited, Limiter, LimiterFuture};

use super::{Shared, reason_of, reason_of_denial};
use crate::{
    charge::{Charge, Charged, Due},
    decisions::Decisions,
    headers::{HeaderUpdate, ResponseDetails},
    key::{KeyError, KeyExtractor},
    metrics::LabelIndex,
    outer_wait::OuterWait,
    rate_limit::{
        answer::{Admission, Extras, RequestContext, Step, Verdict},
        limit::LimitRef,
        limiters::{Selector, Target},
        options::{CostOf, RequestLimiterSource},
        request_limiter::{Charger, RequestLimiter},
    },
    rejection::{Reason, Respond},
    rpc::RpcName,
};

impl<K: KeyExtractor, R> Shared<K, R> {
    /// Checks the limiter that applies to a request.
    // Inlined by force: key and decision are used where they are built, instead of being copied.
    #[inline(always)]
    pub(crate) fn check_request<B>(self: &Arc<Self>, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let options = &self.options;
        if options.exempt.as_ref().is_some_and(|exempt| exempt(parts)) {
            return Verdict::Admit(Admission::EXEMPT);
        }
        let target = match &self.selector {
            Selector::Always(target) => *target,
            Selector::By(select) => match select(parts) {
                Ok(target) => target,
                Err(error) => return self.judge_without_key(&error, parts),
            },
        };
        match target {
            Target::Fixed(at) => self.check_limit(LimitRef::Fixed(at), parts),
            Target::Lookup(at) => self.look_up(at, parts),
            Target::Decider(at) => self.decide(at, parts),
            Target::Exempt => Verdict::Admit(Admission::EXEMPT),
        }
    }

    /// Looks up the limiter of a request, and checks it.
    // Not inlined: a request with a fixed limiter would pay for the larger stack frame.
    #[inline(never)]
    fn look_up<B>(self: &Arc<Self>, at: usize, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        match self.lookups[at].limiter_for(parts).map(LimiterFuture::into_ready) {
            Ok(Ok(limiter)) => self.check_looked_up(limiter, parts),
            Ok(Err(pending)) => Verdict::Wait(Step::LookUp(pending)),
            Err(error) => self.judge_without_key(&error, parts),
        }
    }

    /// Checks a limiter that was looked up.
    #[inline(never)]
    pub(crate) fn check_looked_up<B>(self: &Arc<Self>, limiter: Result<Limited, Error>, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        match limiter {
            Ok(Limited::By(limiter)) => {
                let profile = self.profiles.of(limiter.policies(), &self.options.headers, &self.labels);
                self.check_limit(LimitRef::LookedUp(limiter, profile), parts)
            }
            Ok(Limited::Exempt) => Verdict::Admit(Admission::EXEMPT),
            Err(error) if self.options.is_shadow => {
                tracing::debug!(%error, "no limits, the request passes in shadow mode");
                Verdict::Admit(Admission::EXEMPT)
            }
            Err(error) => self.reject_unchecked(Reason::Unavailable(&error), parts),
        }
    }

    /// Checks the limiter of a request.
    // Inlined by force, as `check_request` is.
    #[inline(always)]
    fn check_limit<B>(self: &Arc<Self>, limit: LimitRef, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let options = &self.options;
        // Key and result are borrowed, not moved: they are larger than what is done with them.
        let extraction = self.key.extract(parts);
        let key = match &extraction {
            Ok(Some(key)) => key,
            Ok(None) => return Verdict::Admit(Admission::EXEMPT),
            Err(error) => return self.judge_without_key(error, parts),
        };
        self.double_count.inspect(parts, key, limit.get(&self.fixed).limiter.policies());
        let cost = match &options.cost {
            None => Cost::ONE,
            Some(CostOf::One(cost)) => cost(parts),
            Some(CostOf::Each(costs)) => return self.check_costs(costs(parts), limit, key, parts),
            Some(CostOf::Estimate(estimate, options)) => {
                return self.reserve(estimate(parts), *options, limit, key, parts);
            }
        };
        let keeps_key =
            options.final_cost.is_some() || options.request_limiter.is_some() || options.partition_secret.is_some();
        let mut context = RequestContext {
            limit,
            key: keeps_key.then(|| Box::new(key.clone())),
            cost,
            costs: None,
            is_reserved: false,
            labels: LabelIndex::of(parts, &self.labels),
        };
        let limit = context.limit.get(&self.fixed);
        let check = if options.charges_after {
            limit.look_or_check(key, cost.into(), options.wait)
        } else {
            limit.check(key, cost, options.wait)
        };
        match check.as_ready() {
            None => Verdict::Wait(Step::Check(check, context)),
            Some(result) => self.judge(result, &mut context, parts),
        }
    }

    /// Checks the limiter of a request with a cost for each policy.
    // Not inlined: a request with one cost would pay for the larger stack frame.
    #[inline(never)]
    fn check_costs<B>(self: &Arc<Self>, costs: Costs, limit: LimitRef, key: &Key, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let options = &self.options;
        let due = options.charges_after.then(|| Box::new(costs.clone()));
        let checked = limit.get(&self.fixed);
        let check = if options.charges_after {
            checked.look_or_check(key, costs, options.wait)
        } else {
            checked.check_costs(key, costs, options.wait)
        };
        let labels = LabelIndex::of(parts, &self.labels);
        let mut context = RequestContext {
            limit,
            key: Some(Box::new(key.clone())),
            cost: Cost::ONE,
            costs: due,
            is_reserved: false,
            labels,
        };
        match check.as_ready() {
            None => Verdict::Wait(Step::Check(check, context)),
            Some(Err(error)) if error.kind() == ErrorKind::Config => {
                self.judge_without_key(&KeyError::misconfigured(error.to_string()), parts)
            }
            Some(result) => self.judge(result, &mut context, parts),
        }
    }

    /// Turns the result of a check into a verdict.
    // Inlined by force, as `check_request` is.
    #[inline(always)]
    pub(crate) fn judge<B>(
        self: &Arc<Self>,
        result: Result<&Decision, &Error>,
        context: &mut RequestContext,
        parts: &mut Parts,
    ) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let &mut RequestContext { limit: ref limit_ref, ref mut key, cost, ref mut costs, is_reserved, labels } =
            context;
        let (limit, options) = (limit_ref.get(&self.fixed), &self.options);
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => {
                if matches!(error.kind(), ErrorKind::KeyLevels | ErrorKind::CrossSlot) {
                    return self.judge_without_key(&KeyError::misconfigured(error.to_string()), parts);
                }
                if options.is_shadow {
                    tracing::debug!(%error, "no decision, the request passes in shadow mode");
                    return Verdict::Admit(Admission::EXEMPT);
                }
                let details = ResponseDetails::default();
                return Verdict::Reject(self.reject(reason_of(error), Some(limit.profile), &details, parts, labels));
            }
        };
        let details = self.details(key.as_deref());
        let decisions = options.exposes_decisions.then(|| Decisions::append(decision, &mut parts.extensions));
        self.record_decision(limit.profile, decision, labels, &self.rpc_name(parts));
        if decision.is_denied() && !options.is_shadow {
            let reason = reason_of_denial(decision);
            return Verdict::Reject(self.reject(reason, Some(limit.profile), &details, parts, labels));
        }
        if let (Some(source), Some(key)) = (options.request_limiter, &*key) {
            let limiter = self.request_limiter(source, limit_ref, key, parts, labels);
            parts.extensions.insert(limiter);
        }
        let is_charged = options.final_cost.is_some() && !is_reserved && decision.is_allowed();
        let extras = (is_charged || decisions.is_some()).then(|| {
            let key = key.take().filter(|_| is_charged);
            self.extras(limit.limiter, decision, costs.take().map_or(Due::One(cost), Due::Each), key, decisions)
        });
        let headers = if options.is_shadow {
            HeaderUpdate::EMPTY
        } else {
            limit.profile.headers.update(decision, decision.states(), &details)
        };
        if headers.is_spent() {
            OuterWait::store(decision, details.jitter, &mut parts.extensions);
        }
        Verdict::Admit(Admission::new(headers, extras))
    }

    /// Returns what is left to do besides the headers when the service has answered.
    // Not inlined: a charge is large, and the many layers without one would move it.
    #[inline(never)]
    fn extras(
        &self,
        limiter: &Limiter,
        decision: &Decision,
        due: Due,
        key: Option<Box<Key>>,
        decisions: Option<Decisions>,
    ) -> Box<Extras> {
        let charge = match (&self.options.final_cost, key) {
            (Some(final_cost), Some(key)) if decision.is_allowed() => {
                // A look that admits a request has charged nothing.
                let due = (self.options.charges_after && decision.cost() == Cost::ZERO).then_some(due);
                let charged = Charged { limiter: limiter.clone(), key: *key, decision: decision.clone() };
                Some(Charge::new([charged].into_iter().collect(), due, final_cost.clone()))
            }
            _ => None,
        };
        Box::new(Extras { charge, decisions, ..Extras::default() })
    }

    fn request_limiter(
        self: &Arc<Self>,
        source: RequestLimiterSource,
        limit: &LimitRef,
        key: &Key,
        parts: &Parts,
        labels: LabelIndex,
    ) -> RequestLimiter
    where
        R: Send + Sync + 'static,
    {
        let limit = match source {
            RequestLimiterSource::Same => limit.clone(),
            RequestLimiterSource::At(own) => LimitRef::Fixed(own),
        };
        // The names appear in debug logs alone, so they are copied only for those.
        let is_logged = tracing::enabled!(tracing::Level::DEBUG);
        let rpc = if is_logged { self.rpc_name(parts).into_owned() } else { RpcName::NONE };
        RequestLimiter::new(Arc::clone(self) as Arc<dyn Charger>, limit, key.clone(), labels, rpc)
    }
}
