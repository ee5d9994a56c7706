//! Names the future of a [`RetryAfter`](super::RetryAfter) service.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Response;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_service::Service;

use super::gate::Gate;

// Written by hand, because a named future needs no box: a request that is not delayed allocates nothing here.
pin_project! {
    /// Resolves to the response of the inner service, which is called after the delay.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Request>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request, S::Future>,
        gate: Arc<Gate>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, Request, F> {
        Waiting { #[pin] sleep: Sleep, delayed: Option<(S, Request)> },
        Calling { #[pin] future: F },
    }
}

impl<S: Service<Request>, Request> ResponseFuture<S, Request> {
    pub(super) fn calling(future: S::Future, gate: Arc<Gate>) -> Self {
        Self { state: State::Calling { future }, gate }
    }

    pub(super) fn waiting(opens_at: Instant, ready: S, request: Request, gate: Arc<Gate>) -> Self {
        Self { state: State::Waiting { sleep: sleep_until(opens_at), delayed: Some((ready, request)) }, gate }
    }
}

impl<S, Request, Body> Future for ResponseFuture<S, Request>
where
    S: Service<Request, Response = Response<Body>>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Waiting { mut sleep, delayed } => {
                    ready!(sleep.as_mut().poll(cx));
                    if let Some(opens_at) = this.gate.opens_at() {
                        // Meanwhile the response to another request has extended the delay.
                        sleep.reset(opens_at);
                        continue;
                    }
                    let (mut ready, request) = delayed.take().expect("the request is taken once");
                    State::Calling { future: ready.call(request) }
                }
                StateProj::Calling { future } => {
                    let response = ready!(future.poll(cx))?;
                    this.gate.apply(&response);
                    return Poll::Ready(Ok(response));
                }
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Request>, Request> fmt::Debug for ResponseFuture<S, Request> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "ResponseFuture::Waiting",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}
