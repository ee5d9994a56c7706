//! The future of a [`RateLimit`](crate::RateLimit) service.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate::{CheckFuture, Decision};
use tower_service::Service;

use crate::{Respond, shared::Shared};

pin_project! {
    /// The response of the service inside, or the answer that stands in for it.
    ///
    /// An in-process decision is made before this future exists, and needs no allocation; a store
    /// that has to be waited for is asked as it is polled. To drop it gives the request up; what
    /// was spent for it stays spent.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, K, R, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, K, R, B, S::Future, S::Response>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, K, R, B, F, A> {
        Answered { response: Option<A> },
        Deciding { #[pin] check: CheckFuture, asked: Option<(S, Request<B>)>, shared: Arc<Shared<K, R>> },
        Serving { #[pin] future: F, served: Option<(Decision, Arc<Shared<K, R>>)> },
    }
}

impl<S: Service<Request<B>>, K, R, B> ResponseFuture<S, K, R, B> {
    /// The service is called without a limit.
    pub(crate) fn exempt(future: S::Future) -> Self {
        Self { state: State::Serving { future, served: None } }
    }

    /// The service is called with this decision.
    pub(crate) fn serving(future: S::Future, decision: Decision, shared: Arc<Shared<K, R>>) -> Self {
        Self { state: State::Serving { future, served: Some((decision, shared)) } }
    }

    /// The service is not called.
    pub(crate) fn answered(response: S::Response) -> Self {
        Self { state: State::Answered { response: Some(response) } }
    }

    /// The decision has to be waited for.
    pub(crate) fn deciding(check: CheckFuture, ready: S, request: Request<B>, shared: Arc<Shared<K, R>>) -> Self {
        Self { state: State::Deciding { check, asked: Some((ready, request)), shared } }
    }
}

impl<S, K, R, ReqBody, ResBody> Future for ResponseFuture<S, K, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    R: Respond<ResBody>,
{
    type Output = Result<S::Response, S::Error>;

    /// # Panics
    ///
    /// When polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Answered { response } => {
                    return Poll::Ready(Ok(response.take().expect("a response is taken once")));
                }
                StateProj::Serving { future, served } => {
                    let mut response = ready!(future.poll(cx))?;
                    if let Some((decision, shared)) = served.take() {
                        shared.finish(&decision, response.headers_mut());
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProj::Deciding { check, asked, shared } => {
                    let answer = ready!(check.poll(cx));
                    let (mut ready, request) = asked.take().expect("a decision is made once");
                    let (parts, body) = request.into_parts();
                    match shared.judge(answer, &parts) {
                        Ok(decision) => State::Serving {
                            future: ready.call(Request::from_parts(parts, body)),
                            served: Some((decision, Arc::clone(shared))),
                        },
                        Err(response) => State::Answered { response: Some(response) },
                    }
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, K, R, B> fmt::Debug for ResponseFuture<S, K, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Answered { .. } => "ResponseFuture::Answered",
            State::Deciding { .. } => "ResponseFuture::Deciding",
            State::Serving { .. } => "ResponseFuture::Serving",
        })
    }
}
