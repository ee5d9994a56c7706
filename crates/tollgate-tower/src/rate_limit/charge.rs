//! Charges a request: one cost, a cost for each policy, or an estimate.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::request::Parts;
use tollgate::{Cost, Costs, Key, Priority};

use crate::{
    charge::Due,
    key::Extraction,
    metrics::LabelIndex,
    rate_limit::{
        builder::CostOf,
        limits::{LimitRef, Limits, Steps},
        request::{Asked, RequestContext, Step, Verdict},
        reservation::ReserveOptions,
    },
};

impl Limits {
    /// Returns the costs of a request, with its priority.
    pub(super) fn costs(&self, request: &Parts) -> Costs {
        let costs = match &self.options.cost {
            None => Cost::ONE.into(),
            Some(CostOf::One(cost)) => cost(request).into(),
            Some(CostOf::Each(costs) | CostOf::Estimate(costs, _)) => costs(request),
        };
        match &self.options.priority {
            Some(priority) => costs.with_priority(priority(request)),
            None => costs,
        }
    }

    /// Gives costs of a handler the priority of the request, unless the handler has lowered theirs.
    pub(super) fn ranked(&self, costs: Costs, request: &Parts) -> Costs {
        match &self.options.priority {
            Some(priority) if costs.priority() == Priority::CRITICAL => {
                costs.with_priority(priority(request))
            }
            _ => costs,
        }
    }
}

impl<B: 'static> Steps<'_, B> {
    /// Checks the limiter of a request at its cost.
    // Inlined by force, as `begin` is.
    #[inline(always)]
    pub(super) fn charge(self, limit: LimitRef, key: &Extraction, parts: &mut Parts) -> Verdict<B> {
        let (limits, options) = (self.limits, &self.limits.options);
        // Key and result are borrowed, not moved: they are larger than what is done with them.
        let key = match key {
            Ok(Some(key)) => key,
            Ok(None) => return self.exempt(parts),
            Err(error) => return self.judge_without_key(error, parts),
        };
        if limits
            .double_count
            .inspect(parts, key, limit.get(&limits.fixed).limiter.policies())
        {
            limits.warn_of_unknown_units();
        }
        let cost = match (&options.cost, &options.priority) {
            (None, None) => Cost::ONE,
            (Some(CostOf::One(cost)), None) => cost(parts),
            (Some(CostOf::Estimate(_, options)), _) => {
                return self.reserve(limits.costs(parts), *options, limit, key, parts);
            }
            _ => return self.charge_costs(limits.costs(parts), limit, key, parts),
        };
        let keeps_key = options.final_cost.is_some()
            || options.request_limiter.is_some()
            || options.partition_secret.is_some();
        let mut context = RequestContext {
            limit,
            key: keeps_key.then(|| Box::new(key.clone())),
            due: Due::One(cost),
            asked: Asked::One,
            is_shadow: limits.is_shadow(key),
            labels: LabelIndex::of(parts, &limits.gate.labels),
        };
        let limit = context.limit.get(&limits.fixed);
        let check = if options.charges_after {
            limit.look_or_check(key, cost.into(), options.wait, context.is_shadow)
        } else {
            limit.check(key, cost, options.wait, context.is_shadow)
        };
        match check.as_ready() {
            None => Verdict::Wait(Step::Check(check, context)),
            Some(result) => self.judge(result, &mut context, parts),
        }
    }

    /// Checks the limiter of a request with a cost for each policy.
    // Not inlined: a request with one cost would pay for the larger stack frame.
    #[inline(never)]
    pub(super) fn charge_costs(
        self,
        costs: Costs,
        limit: LimitRef,
        key: &Key,
        parts: &mut Parts,
    ) -> Verdict<B> {
        let options = &self.limits.options;
        let mut context = self.context(limit, key, Asked::Each, parts);
        let limit = context.limit.get(&self.limits.fixed);
        let check = if options.charges_after {
            context.due = Due::Each(Box::new(costs.clone()));
            limit.look_or_check(key, costs, options.wait, context.is_shadow)
        } else {
            limit.check_costs(key, costs, options.wait, context.is_shadow)
        };
        match check.as_ready() {
            None => Verdict::Wait(Step::Check(check, context)),
            Some(result) => self.judge(result, &mut context, parts),
        }
    }

    /// Reserves the estimate of a request.
    // Not inlined: a request with one cost would pay for the larger stack frame.
    #[inline(never)]
    pub(super) fn reserve(
        self,
        estimate: Costs,
        options: ReserveOptions,
        limit: LimitRef,
        key: &Key,
        parts: &mut Parts,
    ) -> Verdict<B> {
        let mut context = self.context(limit, key, Asked::Estimate, parts);
        let limit = context.limit.get(&self.limits.fixed);
        let reservation = limit.reserve(
            key,
            estimate,
            options,
            self.limits.options.wait,
            context.is_shadow,
        );
        match reservation.into_ready() {
            Ok(result) => self.judge_reservation(result, &mut context, parts),
            Err(pending) => Verdict::Wait(Step::Reserve(Box::new((pending, context)))),
        }
    }

    /// Returns the context of a request that keeps its key.
    pub(super) fn context(
        self,
        limit: LimitRef,
        key: &Key,
        asked: Asked,
        parts: &Parts,
    ) -> RequestContext {
        RequestContext {
            limit,
            key: Some(Box::new(key.clone())),
            due: Due::One(Cost::ONE),
            asked,
            is_shadow: self.limits.is_shadow(key),
            labels: LabelIndex::of(parts, &self.limits.gate.labels),
        }
    }

    /// Waits for the next step of a request.
    pub(super) fn poll_step(
        self,
        step: &mut Step,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Verdict<B>> {
        Poll::Ready(match step {
            Step::LookUp(limiter, key) => {
                let limiter = ready!(Pin::new(limiter).poll(cx));
                self.charge_looked_up(limiter, key, parts)
            }
            Step::Check(check, context) => {
                let result = ready!(Pin::new(check).poll(cx));
                self.judge(result.as_ref(), context, parts)
            }
            Step::Reserve(reserving) => {
                let (reservation, context) = &mut **reserving;
                let result = ready!(Pin::new(reservation).poll(cx));
                self.judge_reservation(result, context, parts)
            }
            Step::Decide(decision) => {
                let decision = ready!(Pin::new(decision).poll(cx));
                self.judge_joint(decision, parts)
            }
        })
    }
}
