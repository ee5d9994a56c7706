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
use tollgate::CheckFuture;
use tower_service::Service;

use crate::{
    KeyExtractor, Respond,
    answer::Passed,
    shared::{Asked, Shared, Ticket},
};

pin_project! {
    /// The response of the service inside, or the answer that stands in for it.
    ///
    /// An in-process decision is made before this future exists, and needs no allocation; a store
    /// that has to be waited for is asked as it is polled. To drop it gives the request up; what
    /// was spent for it stays spent, unless the layer [settles](crate::RateLimitBuilder::settle)
    /// otherwise.
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
        Deciding { asking: Option<Box<Asking<S, B>>>, shared: Arc<Shared<K, R>> },
        Serving { #[pin] future: F, passed: Passed },
    }
}

/// A decision that has to be waited for, the service that is ready, and what it is to be called with: apart, so that
/// nobody else carries it along.
pub(crate) struct Asking<S, B> {
    pub(crate) check: CheckFuture,
    pub(crate) ready: S,
    pub(crate) request: Request<B>,
    pub(crate) ticket: Ticket,
}

impl<S: Service<Request<B>>, K, R, B> ResponseFuture<S, K, R, B> {
    /// The service is called.
    #[inline(always)]
    pub(crate) fn serve(service: &mut S, request: Request<B>, passed: Passed) -> Self {
        Self { state: State::serve(service, request, passed) }
    }

    /// The service is not called.
    pub(crate) fn answered(response: S::Response) -> Self {
        Self { state: State::Answered { response: Some(response) } }
    }

    /// The decision has to be waited for.
    pub(crate) fn deciding(asking: Asking<S, B>, shared: Arc<Shared<K, R>>) -> Self {
        Self { state: State::Deciding { asking: Some(Box::new(asking)), shared } }
    }
}

impl<S: Service<Request<B>>, K, R, B> State<S, K, R, B, S::Future, S::Response> {
    #[inline(always)]
    fn serve(service: &mut S, request: Request<B>, mut passed: Passed) -> Self {
        let future = match passed.charge() {
            Some(charge) => charge.running(|| service.call(request)),
            None => service.call(request),
        };
        Self::Serving { future, passed }
    }
}

impl<S, K, R, ReqBody, ResBody> Future for ResponseFuture<S, K, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    K: KeyExtractor,
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
                StateProj::Serving { future, passed } => {
                    let answer = ready!(match passed.charge() {
                        Some(charge) => charge.running(|| future.poll(cx)),
                        None => future.poll(cx),
                    });
                    return Poll::Ready(match answer {
                        Ok(mut response) => {
                            passed.finish(&mut response);
                            Ok(response)
                        }
                        Err(error) => {
                            passed.failed();
                            Err(error)
                        }
                    });
                }
                StateProj::Deciding { asking, shared } => {
                    let check = &mut asking.as_mut().expect("a decision is made once").check;
                    let answer = ready!(Pin::new(check).poll(cx));
                    let Asking { mut ready, request, ticket, .. } = *asking.take().expect("a decision is made once");
                    let (mut parts, body) = request.into_parts();
                    let asked = shared.judge(answer.as_ref(), ticket, &mut parts);
                    let request = Request::from_parts(parts, body);
                    match asked {
                        Asked::Passes(passed) => State::serve(&mut ready, request, passed),
                        Asked::Refused(response) => State::Answered { response: Some(response) },
                        Asked::Check(check, ticket) => State::Deciding {
                            asking: Some(Box::new(Asking { check, ready, request, ticket })),
                            shared: Arc::clone(shared),
                        },
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
