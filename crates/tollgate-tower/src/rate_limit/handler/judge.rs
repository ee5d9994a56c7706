use std::sync::Arc;

use http::{Response, request::Parts};
use tollgate::{CheckFuture, Costs, Decision, Error, Key, Limiter, Reservation, StoreFuture};

use crate::rate_limit::{answer::Admission, limit::LimitRef, reservation::ReserveOptions};

/// Checks limiters and answers requests by the options of a layer.
///
/// The state of a layer implements it, so that a [`HandlerLimiter`](super::HandlerLimiter) does not carry the type
/// parameters of the layer.
pub(crate) trait Judge<B>: Send + Sync {
    /// Returns the limiter with what the layer keeps for its policies.
    fn limit(&self, limiter: Limiter) -> LimitRef;

    /// Returns the costs of a request.
    fn costs(&self, request: &Parts) -> Costs;

    fn check(&self, limit: &LimitRef, key: &Key, costs: Costs) -> CheckFuture;

    fn reserve(
        &self,
        limit: &LimitRef,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
    ) -> StoreFuture<Reservation>;

    /// Returns what is left to do for a request whose estimate is reserved, or the response to a rejected one.
    fn judge_reservation(
        self: Arc<Self>,
        result: Result<Reservation, Error>,
        limit: LimitRef,
        key: Key,
        request: &mut Parts,
    ) -> Result<Admission, Response<B>>;

    /// Returns what is left to do for an admitted request, or the response to a rejected one.
    fn judge(
        self: Arc<Self>,
        result: Result<&Decision, &Error>,
        limit: LimitRef,
        key: Key,
        costs: Costs,
        request: &mut Parts,
    ) -> Result<Admission, Response<B>>;
}
