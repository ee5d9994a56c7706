use std::{
    fmt,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{future::ResponseFuture, metered::MeteredReservation};
use crate::{
    RateLimit,
    body::GuardedBody,
    key::{BoxedKey, KeyExtractor},
    rejection::{Problem, Respond},
};

/// Limits the requests of an inner service, and settles their cost when their response bodies end.
/// [`ReservationLayer`](super::ReservationLayer) creates it.
pub struct ReservationService<S, K = BoxedKey, R = Problem> {
    inner: RateLimit<S, K, R>,
}

impl<S, K, R> ReservationService<S, K, R> {
    pub(super) fn new(inner: RateLimit<S, K, R>) -> Self {
        Self { inner }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        self.inner.get_ref()
    }

    /// Returns the inner service for changes.
    pub fn get_mut(&mut self) -> &mut S {
        self.inner.get_mut()
    }

    /// Removes the limit and returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner.into_inner()
    }
}

impl<S, K, R, ReqBody, ResBody> Service<Request<ReqBody>> for ReservationService<S, K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ReqBody: 'static,
    ResBody: Body,
{
    type Response = Response<GuardedBody<ResBody, MeteredReservation>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, R, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<ReqBody>>::poll_ready(&mut self.inner, cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        ResponseFuture::new(self.inner.call(request))
    }
}

impl<S: Clone, K, R> Clone for ReservationService<S, K, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<S: fmt::Debug, K, R> fmt::Debug for ReservationService<S, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReservationService").field("inner", &self.inner).finish()
    }
}
