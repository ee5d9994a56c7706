//! The way of a request that a handler checks itself.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::request::Parts;
use tollgate::{Cost, Costs, Decision, Error, Key, Limiter, Priority, store::CheckFuture};

use super::{LimitRef, Shared, reject::reason_of};
use crate::{
    key::KeyExtractor,
    metrics::LabelIndex,
    rate_limit::{
        builder::CostOf,
        handler::{Charger, Judge},
        layer::{Asked, RequestContext, Step, Verdict},
        reservation::ReserveOptions,
    },
    rejection::{Reason, Respond},
    rpc::RpcName,
};

impl<K: Send + Sync, R: Send + Sync> Charger for Shared<K, R> {
    fn limiter<'a>(&'a self, limit: &'a LimitRef) -> &'a Limiter {
        limit.get(&self.fixed).limiter
    }

    fn limit(&self, limiter: Limiter) -> LimitRef {
        let profile = self.profiles.of(limiter.policies(), &self.options.headers, &self.gate.labels);
        LimitRef::LookedUp(limiter, profile)
    }

    fn charge(&self, limit: &LimitRef, key: &Key, costs: Costs, wait: Option<Duration>) -> CheckFuture {
        limit.get(&self.fixed).check_costs(key, costs, wait.or(self.options.wait), self.is_shadow(key))
    }

    fn record(
        &self,
        limit: &LimitRef,
        key: &Key,
        result: &Result<Decision, Error>,
        labels: LabelIndex,
        rpc: &RpcName<&str>,
    ) -> bool {
        let is_shadow = self.is_shadow(key);
        let reason = match result {
            Ok(decision) => {
                self.record_decision(limit.get(&self.fixed).profile, decision, labels, rpc, is_shadow);
                if decision.is_allowed() {
                    return true;
                }
                Reason::of_denial(decision)
            }
            Err(error) => reason_of(error),
        };
        if !is_shadow {
            self.record_rejection(reason, labels, rpc);
        }
        is_shadow
    }
}

impl<K: KeyExtractor, R: Respond<B>, B> Judge<B> for Shared<K, R> {
    fn costs(&self, request: &Parts) -> Costs {
        match &self.options.cost {
            None => Cost::ONE.into(),
            Some(CostOf::One(cost)) => cost(request).into(),
            Some(CostOf::Each(costs) | CostOf::Estimate(costs, _)) => costs(request),
        }
    }

    fn ranked(&self, costs: Costs, request: &Parts) -> Costs {
        match &self.options.priority {
            Some(priority) if costs.priority() == Priority::CRITICAL => costs.with_priority(priority(request)),
            _ => costs,
        }
    }

    fn check(self: Arc<Self>, limit: LimitRef, key: &Key, costs: Costs, request: &mut Parts) -> Verdict<B> {
        self.check_costs(costs, limit, key, request)
    }

    fn reserve(
        self: Arc<Self>,
        limit: LimitRef,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
        request: &mut Parts,
    ) -> Verdict<B> {
        Self::reserve(&self, estimate, options, limit, key, request)
    }

    fn poll(self: Arc<Self>, step: &mut Step, request: &mut Parts, cx: &mut Context<'_>) -> Poll<Verdict<B>> {
        Self::poll_step(&self, step, request, cx)
    }

    fn judge(
        self: Arc<Self>,
        result: &Result<Decision, Error>,
        limit: LimitRef,
        key: Key,
        request: &mut Parts,
    ) -> Verdict<B> {
        let is_shadow = self.is_shadow(&key);
        let mut context = RequestContext {
            limit,
            key: Some(Box::new(key)),
            cost: result.as_ref().map_or(Cost::ONE, Decision::cost),
            costs: None,
            asked: Asked::Each,
            is_shadow,
            labels: LabelIndex::of(request, &self.gate.labels),
        };
        Self::judge(&self, result.as_ref(), &mut context, request)
    }
}
