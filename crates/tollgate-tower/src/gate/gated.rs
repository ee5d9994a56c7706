//! The service around which a gate stands, and its future.
//! What a gate decides, and when it is asked, stands at the trait in `mod.rs`.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, request::Parts};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{Gate, Verdict};
use crate::drain::discard;

/// A service with a layer `L` around it, which is its [`Gate`].
///
/// Errors of the compiler name it: `Gated<S, RateLimitLayer<K, R>>` is the inner service `S` behind
/// that layer. It is a service when `S` is a `Clone` one for `http` requests, and when the
/// responder of the layer can build the bodies of `S`.
///
/// Each layer has an alias for its service, such as [`RateLimit`](crate::RateLimit). `poll_ready`
/// forwards to the inner service and spends nothing: the layer decides when the request arrives.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimit, RateLimitLayer, key::Global};
/// use tower::Layer;
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
/// let service: RateLimit<&str, Global> = RateLimitLayer::new(limiter, Global).layer("inner service");
/// assert_eq!(*service.get_ref(), "inner service");
/// assert_eq!(service.into_inner(), "inner service");
/// ```
#[derive(Clone)]
pub struct Gated<S, L> {
    inner: S,
    layer: L,
}

impl<S, L> Gated<S, L> {
    /// Puts a gate in front of a service.
    pub fn new(inner: S, layer: L) -> Self {
        Self { inner, layer }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Removes the layer and returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, L, B> Service<Request<B>> for Gated<S, L>
where
    S: Service<Request<B>>,
    L: Gate<S, B>,
    B: 'static,
{
    type Response = L::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, L, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let state = match self.layer.admit(&mut parts) {
            Verdict::Admit(pass) => {
                State::calling(&mut self.inner, Request::from_parts(parts, body), pass)
            }
            Verdict::Reject(response) => {
                discard(&parts, body);
                State::Rejected {
                    response: Some(response),
                }
            }
            Verdict::Wait(wait) => {
                let ready = L::hold(&mut self.inner, &wait);
                let request = WaitingRequest {
                    wait,
                    ready,
                    parts,
                    body,
                };
                State::Waiting {
                    request: Some(request),
                    layer: self.layer.clone(),
                }
            }
        };
        ResponseFuture { state }
    }
}

impl<S: fmt::Debug, L: fmt::Debug> fmt::Debug for Gated<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

// Written by hand, because a named future needs no box: a decision in the process allocates nothing
// here.
pin_project! {
    /// Resolves to the response of the inner service of a [`Gated`] service, or to a rejection.
    ///
    /// A limiter in the process decides before this future exists. Polling the future checks a
    /// remote store, fetches limits, and waits for permits. Dropping it cancels the request: the
    /// request leaves its queue, and gives its permit or its slot back. Its charge is not refunded,
    /// unless the layer sets a [final cost](crate::RateLimitBuilder::final_cost) or
    /// [reserves](crate::RateLimitBuilder::reserve).
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, L, B>
    where
        S: Service<Request<B>>,
        L: Gate<S, B>,
    {
        #[pin]
        state: State<S, L, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, L, B>
    where
        S: Service<Request<B>>,
        L: Gate<S, B>,
    {
        Rejected { response: Option<S::Response> },
        Waiting { request: Option<WaitingRequest<S, L::Wait, B>>, layer: L },
        Calling { #[pin] future: S::Future, pass: L::Pass },
    }
}

/// Stores a request that waits. The future of an Axum route, which stands in its place later, is as
/// large.
struct WaitingRequest<S, W, B> {
    wait: W,
    /// The service that was ready when the request arrived.
    ready: S,
    /// The head of the request. Head and body stay apart until the service is called, because
    /// joining them copies both.
    parts: Parts,
    body: B,
}

impl<S: Service<Request<B>>, L: Gate<S, B>, B> State<S, L, B> {
    // Inlined by force: the future is built where the caller needs it, instead of being copied
    // there.
    #[inline(always)]
    fn calling(service: &mut S, request: Request<B>, mut pass: L::Pass) -> Self {
        L::set_running(&mut pass, true);
        let future = service.call(request);
        L::set_running(&mut pass, false);
        Self::Calling { future, pass }
    }
}

impl<S, L, B> Future for ResponseFuture<S, L, B>
where
    S: Service<Request<B>>,
    L: Gate<S, B>,
    B: 'static,
{
    type Output = Result<L::Response, S::Error>;

    /// # Panics
    ///
    /// Panics when it is polled after it returned the response.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Rejected { response } => {
                    let response = response.take().expect("the response is taken once");
                    return Poll::Ready(Ok(L::complete(None, response)));
                }
                StateProj::Waiting { request, layer } => {
                    let waiting = request.as_mut().expect("the request is taken once");
                    match ready!(layer.poll_wait(&mut waiting.wait, &mut waiting.parts, cx)) {
                        Verdict::Admit(pass) => {
                            let WaitingRequest {
                                mut ready,
                                parts,
                                body,
                                ..
                            } = request.take().expect("the request is taken once");
                            State::calling(&mut ready, Request::from_parts(parts, body), pass)
                        }
                        Verdict::Reject(response) => {
                            let WaitingRequest { parts, body, .. } =
                                request.take().expect("the request is taken once");
                            discard(&parts, body);
                            State::Rejected {
                                response: Some(response),
                            }
                        }
                        Verdict::Wait(wait) => {
                            waiting.wait = wait;
                            continue;
                        }
                    }
                }
                StateProj::Calling { future, pass } => {
                    if let Poll::Ready(response) = L::poll_revoked(pass, cx) {
                        State::Rejected {
                            response: Some(response),
                        }
                    } else {
                        L::set_running(pass, true);
                        let result = future.poll(cx);
                        L::set_running(pass, false);
                        return Poll::Ready(match ready!(result) {
                            Ok(response) => Ok(L::complete(Some(pass), response)),
                            Err(error) => {
                                L::fail(pass);
                                Err(error)
                            }
                        });
                    }
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, L: Gate<S, B>, B> fmt::Debug for ResponseFuture<S, L, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Rejected { .. } => "ResponseFuture::Rejected",
            State::Waiting { .. } => "ResponseFuture::Waiting",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}
