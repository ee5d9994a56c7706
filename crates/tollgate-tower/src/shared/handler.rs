//! The way of a request that a handler checks itself.

use std::sync::Arc;

use http::{Response, request::Parts};
use tollgate::{CheckFuture, Cost, Decision, Error, Key, Limiter};

use super::Shared;
use crate::{
    answer::{Admission, RequestContext, Verdict},
    handler::Judge,
    key::KeyExtractor,
    limit::LimitRef,
    metrics::LabelIndex,
    rejection::Respond,
};

impl<K: KeyExtractor, R: Respond<B>, B> Judge<B> for Shared<K, R> {
    fn limit(&self, limiter: Limiter) -> LimitRef {
        let profile = self.profiles.of(limiter.policies(), &self.options.headers, &self.labels);
        LimitRef::LookedUp(limiter, profile)
    }

    fn cost(&self, request: &Parts) -> Cost {
        self.options.cost.as_ref().map_or(Cost::ONE, |cost| cost(request))
    }

    fn check(&self, limit: &LimitRef, key: &Key, cost: Cost) -> CheckFuture {
        let limit = limit.get(&self.fixed);
        if self.options.charges_after {
            limit.look_or_check(key, cost, self.options.wait)
        } else {
            limit.check(key, cost, self.options.wait)
        }
    }

    fn judge(
        self: Arc<Self>,
        result: Result<&Decision, &Error>,
        limit: LimitRef,
        key: Key,
        cost: Cost,
        request: &mut Parts,
    ) -> Result<Admission, Response<B>> {
        let labels = LabelIndex::of(request, &self.labels);
        let mut context = RequestContext { limit, key: Some(Box::new(key)), cost, labels };
        match Self::judge(&self, result, &mut context, request) {
            Verdict::Admit(admission) => Ok(admission),
            Verdict::Reject(response) => Err(response),
            Verdict::Wait(_) => unreachable!("a result is never waited for"),
        }
    }
}
