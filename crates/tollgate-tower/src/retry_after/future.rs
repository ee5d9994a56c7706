//! The future of a [`RetryAfter`](super::RetryAfter) service.

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

use super::Gate;

pin_project! {
    /// The response of the service inside, which is called when the other side wants it.
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
        Holding { #[pin] sleep: Sleep, asked: Option<(S, Request)> },
        Calling { #[pin] future: F },
    }
}

impl<S: Service<Request>, Request> ResponseFuture<S, Request> {
    pub(super) fn calling(future: S::Future, gate: Arc<Gate>) -> Self {
        Self { state: State::Calling { future }, gate }
    }

    pub(super) fn holding(until: Instant, ready: S, request: Request, gate: Arc<Gate>) -> Self {
        Self { state: State::Holding { sleep: sleep_until(until), asked: Some((ready, request)) }, gate }
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
                StateProj::Holding { mut sleep, asked } => {
                    ready!(sleep.as_mut().poll(cx));
                    if let Some(later) = this.gate.opens_at() {
                        // Another call was told to wait longer meanwhile.
                        sleep.reset(later);
                        continue;
                    }
                    let (mut ready, request) = asked.take().expect("a service is called once");
                    State::Calling { future: ready.call(request) }
                }
                StateProj::Calling { future } => {
                    let response = ready!(future.poll(cx))?;
                    this.gate.heed(&response);
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
            State::Holding { .. } => "ResponseFuture::Holding",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}
