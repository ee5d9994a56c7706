use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::metered::MeteredReservation;
use crate::{
    body::{GuardedBody, guard_response},
    key::KeyExtractor,
    rate_limit::future,
    rejection::Respond,
};

pin_project! {
    /// Resolves to the response of a [`ReservationService`](super::ReservationService).
    ///
    /// Dropping the future cancels the request. It is settled at what the meter has counted.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, R, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        inner: future::ResponseFuture<S, K, R, B>,
    }
}

impl<S: Service<Request<B>>, K, R, B> ResponseFuture<S, K, R, B> {
    pub(super) fn new(inner: future::ResponseFuture<S, K, R, B>) -> Self {
        Self { inner }
    }
}

impl<S, K, R, ReqBody, ResBody> Future for ResponseFuture<S, K, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ReqBody: 'static,
    ResBody: Body,
{
    type Output = Result<Response<GuardedBody<ResBody, MeteredReservation>>, S::Error>;

    /// # Panics
    ///
    /// Panics when it is polled after it returned the response.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll_with(cx, |mut response, admission| {
            let Some(admission) = admission else { return response.map(GuardedBody::unguarded) };
            let reservation = admission.take_reservation();
            admission.complete(&mut response);
            match reservation {
                Some(reservation) => guard_response(response, reservation),
                None => response.map(GuardedBody::unguarded),
            }
        })
    }
}

impl<S: Service<Request<B>>, K, R, B> fmt::Debug for ResponseFuture<S, K, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("inner", &self.inner).finish()
    }
}
