//! The way of a request whose cost is settled later.

use std::sync::Arc;

use http::request::Parts;
use tollgate::{Cost, Costs, Error, Key, reservation::Reservation};

use super::{LimitRef, Shared};
use crate::{
    key::KeyExtractor,
    metrics::LabelIndex,
    rate_limit::{
        layer::{Asked, RequestContext, Step, Verdict},
        reservation::{MeteredReservation, ReserveOptions},
    },
    rejection::Respond,
};

impl<K: KeyExtractor, R> Shared<K, R> {
    /// Reserves the estimate of a request.
    // Not inlined: a request with one cost would pay for the larger stack frame.
    #[inline(never)]
    pub(super) fn reserve<B>(
        self: &Arc<Self>,
        estimate: Costs,
        options: ReserveOptions,
        limit: LimitRef,
        key: &Key,
        parts: &mut Parts,
    ) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let is_shadow = self.is_shadow(key);
        let reservation = limit.get(&self.fixed).reserve(key, estimate, options, self.options.wait, is_shadow);
        let labels = LabelIndex::of(parts, &self.gate.labels);
        let mut context = RequestContext {
            limit,
            key: Some(Box::new(key.clone())),
            cost: Cost::ONE,
            costs: None,
            asked: Asked::Estimate,
            is_shadow,
            labels,
        };
        match reservation.into_ready() {
            Ok(result) => self.judge_reservation(result, &mut context, parts),
            Err(pending) => Verdict::Wait(Step::Reserve(Box::new((pending, context)))),
        }
    }

    /// Turns the result of a reservation into a verdict. A request that is admitted has a meter.
    #[inline(never)]
    pub(crate) fn judge_reservation<B>(
        self: &Arc<Self>,
        result: Result<Reservation, Error>,
        context: &mut RequestContext,
        parts: &mut Parts,
    ) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let mut verdict = self.judge(result.as_ref().map(Reservation::decision), context, parts);
        if let Verdict::Admit(admission) = &mut verdict {
            let reservation = MeteredReservation::new(context.limit.get(&self.fixed).limiter, result.ok());
            parts.extensions.insert(reservation.meter().clone());
            admission.hold(reservation);
        }
        verdict
    }
}
