use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    body::PermitBody,
    in_flight::{AcquireFuture, InFlight},
    shared::Shared,
};
use crate::{drain::discard, rejection::Respond};

pin_project! {
    /// Resolves to the response of a [`ConcurrencyService`](super::ConcurrencyService).
    ///
    /// Dropping the future leaves the queue, and gives the permit of the request back.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, R, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future, S::Response>,
        shared: Arc<Shared<K, R>>,
    }
}

pin_project! {
    // Written by hand, because a named future needs no box.
    #[project = StateProj]
    enum State<S, B, F, A> {
        Rejected { response: Option<A> },
        Acquiring { pending: Option<Box<PendingRequest<S, B>>> },
        Calling { #[pin] future: F, in_flight: InFlight },
    }
}

/// Stores a request until it has a permit.
pub(super) struct PendingRequest<S, B> {
    pub(super) acquire: AcquireFuture,
    /// The service that was ready when the request arrived.
    pub(super) ready: S,
    pub(super) parts: Parts,
    pub(super) body: B,
}

impl<S: Service<Request<B>>, K, R, B> ResponseFuture<S, K, R, B> {
    pub(super) fn rejected(response: S::Response, shared: &Arc<Shared<K, R>>) -> Self {
        Self { state: State::Rejected { response: Some(response) }, shared: Arc::clone(shared) }
    }

    pub(super) fn acquiring(pending: PendingRequest<S, B>, shared: &Arc<Shared<K, R>>) -> Self {
        Self { state: State::Acquiring { pending: Some(Box::new(pending)) }, shared: Arc::clone(shared) }
    }

    pub(super) fn calling(future: S::Future, in_flight: InFlight, shared: &Arc<Shared<K, R>>) -> Self {
        Self { state: State::Calling { future, in_flight }, shared: Arc::clone(shared) }
    }
}

impl<S, K, R, ReqBody, ResBody> Future for ResponseFuture<S, K, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    R: Respond<ResBody>,
    ReqBody: 'static,
    ResBody: Body,
{
    type Output = Result<Response<PermitBody<ResBody>>, S::Error>;

    /// # Panics
    ///
    /// Panics when it is polled after it returned the response.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Rejected { response } => {
                    let response = response.take().expect("the response is taken once");
                    return Poll::Ready(Ok(response.map(PermitBody::unguarded)));
                }
                StateProj::Acquiring { pending } => {
                    let waiting = pending.as_mut().expect("the request is taken once");
                    let outcome = ready!(waiting.acquire.as_mut().poll(cx));
                    match this.shared.judge(outcome, &waiting.parts) {
                        Ok(in_flight) => {
                            let PendingRequest { mut ready, parts, body, .. } =
                                *pending.take().expect("the request is taken once");
                            State::Calling { future: ready.call(Request::from_parts(parts, body)), in_flight }
                        }
                        Err(response) => {
                            let PendingRequest { parts, body, .. } =
                                *pending.take().expect("the request is taken once");
                            discard(&parts, body);
                            State::Rejected { response: Some(response) }
                        }
                    }
                }
                StateProj::Calling { future, in_flight } => match in_flight.poll_lost(cx) {
                    // The next state drops the future of the service.
                    Poll::Ready(request) => State::Rejected { response: Some(this.shared.reject_lost(&request)) },
                    Poll::Pending => {
                        return Poll::Ready(match ready!(future.poll(cx)) {
                            Ok(response) => Ok(in_flight.complete(response)),
                            Err(error) => {
                                in_flight.fail();
                                Err(error)
                            }
                        });
                    }
                },
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, K, R, B> fmt::Debug for ResponseFuture<S, K, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Rejected { .. } => "ResponseFuture::Rejected",
            State::Acquiring { .. } => "ResponseFuture::Acquiring",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}
