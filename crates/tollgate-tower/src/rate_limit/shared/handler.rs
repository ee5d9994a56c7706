//! The way of a request that a handler checks itself.

use std::sync::Arc;

use http::{Response, request::Parts};
use tollgate::{CheckFuture, Cost, Costs, Decision, Error, ErrorKind, Key, Limiter, Reservation, StoreFuture};

use super::Shared;
use crate::{
    key::{KeyError, KeyExtractor},
    metrics::LabelIndex,
    rate_limit::{
        admission::{Admission, RequestContext, Verdict},
        handler::Judge,
        limit::{CostOf, LimitRef},
        reservation::ReserveOptions,
    },
    rejection::Respond,
};

impl<K: KeyExtractor, R: Respond<B>, B> Judge<B> for Shared<K, R> {
    fn limit(&self, limiter: Limiter) -> LimitRef {
        let profile = self.profiles.of(limiter.policies(), &self.options.headers, &self.gate.labels);
        LimitRef::LookedUp(limiter, profile)
    }

    fn costs(&self, request: &Parts) -> Costs {
        match &self.options.cost {
            None => Cost::ONE.into(),
            Some(CostOf::One(cost)) => cost(request).into(),
            Some(CostOf::Each(costs) | CostOf::Estimate(costs, _)) => costs(request),
        }
    }

    fn check(&self, limit: &LimitRef, key: &Key, costs: Costs) -> CheckFuture {
        let limit = limit.get(&self.fixed);
        if self.options.charges_after {
            limit.look_or_check(key, costs, self.options.wait)
        } else {
            limit.check_costs(key, costs, self.options.wait)
        }
    }

    fn reserve(
        &self,
        limit: &LimitRef,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
    ) -> StoreFuture<Reservation> {
        limit.get(&self.fixed).reserve(key, estimate, options, self.options.wait)
    }

    fn judge_reservation(
        self: Arc<Self>,
        result: Result<Reservation, Error>,
        limit: LimitRef,
        key: Key,
        request: &mut Parts,
    ) -> Result<Admission, Response<B>> {
        let labels = LabelIndex::of(request, &self.gate.labels);
        let mut context =
            RequestContext { limit, key: Some(Box::new(key)), cost: Cost::ONE, costs: None, is_reserved: true, labels };
        into_answer(Self::judge_reservation(&self, result, &mut context, request))
    }

    fn judge(
        self: Arc<Self>,
        result: Result<&Decision, &Error>,
        limit: LimitRef,
        key: Key,
        costs: Costs,
        request: &mut Parts,
    ) -> Result<Admission, Response<B>> {
        let labels = LabelIndex::of(request, &self.gate.labels);
        let costs = Some(Box::new(costs));
        let mut context =
            RequestContext { limit, key: Some(Box::new(key)), cost: Cost::ONE, costs, is_reserved: false, labels };
        let verdict = match result {
            Err(error) if error.kind() == ErrorKind::Config => {
                self.judge_without_key(&KeyError::misconfigured(error.to_string()), request)
            }
            _ => Self::judge(&self, result, &mut context, request),
        };
        into_answer(verdict)
    }
}

/// Returns the verdict on a result, which is there.
fn into_answer<B>(verdict: Verdict<B>) -> Result<Admission, Response<B>> {
    match verdict {
        Verdict::Admit(admission) => Ok(admission),
        Verdict::Reject(response) => Err(response),
        Verdict::Wait(_) => unreachable!("a result is never waited for"),
    }
}
