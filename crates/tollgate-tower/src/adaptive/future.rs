use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::{
    shared::{AdaptiveBody, Shared},
    slot::Slot,
};

pin_project! {
    /// Resolves to the response of an [`Adaptive`](super::Adaptive) service.
    ///
    /// Dropping the future gives the slot of the request back.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, B, R>
    where
        B: Body,
    {
        #[pin]
        state: State<F, B, R>,
    }
}

pin_project! {
    // Written by hand, because a named future needs no box.
    #[project = StateProj]
    enum State<F, B, R>
    where
        B: Body,
    {
        Rejected { response: Option<Response<AdaptiveBody<B>>> },
        Calling { #[pin] future: F, slot: Option<Slot>, shared: Arc<Shared<R>> },
    }
}

impl<F, B: Body, R> ResponseFuture<F, B, R> {
    pub(super) fn rejected(response: Response<AdaptiveBody<B>>) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    pub(super) fn calling(future: F, slot: Option<Slot>, shared: &Arc<Shared<R>>) -> Self {
        Self { state: State::Calling { future, slot, shared: Arc::clone(shared) } }
    }
}

impl<F, B, R, E> Future for ResponseFuture<F, B, R>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<AdaptiveBody<B>>, E>;

    /// # Panics
    ///
    /// Panics when it is polled after it returned a rejection.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Rejected { response } => Poll::Ready(Ok(response.take().expect("the response is taken once"))),
            StateProj::Calling { future, slot, shared } => Poll::Ready(match ready!(future.poll(cx)) {
                Ok(response) => Ok(shared.complete(response, slot.take())),
                Err(error) => {
                    shared.fail(slot.take());
                    Err(error)
                }
            }),
        }
    }
}

impl<F, B: Body, R> fmt::Debug for ResponseFuture<F, B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Rejected { .. } => "ResponseFuture::Rejected",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}
