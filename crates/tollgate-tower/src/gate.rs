//! The skeleton of the layers that admit or reject requests.
//!
//! Such a layer decides on the head of a request, lets it wait where the decision takes time, calls
//! the service, and completes the response. [`Gated`] does this for all of them, and [`Gate`] is
//! what a layer adds. A layer is a handle to what its clones share, so that the service keeps one
//! beside the inner service.
//! What is decided, and by what, is in the folder of each layer.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::{
    drain::discard,
    headers::ResponseDetails,
    key::{KeyError, KeyErrorKind},
    labels::MetricLabels,
    metrics::{self, LabelIndex},
    rejection::{Problem, Reason, Rejection, Respond, add_headers},
};

/// Decides on the requests of a service `S`. The layers of this crate implement it.
pub trait Gate<S: Service<Request<B>>, B>: Clone {
    /// Stores what belongs to an admitted request until its response.
    type Pass;

    /// Stores what a request waits for.
    type Wait;

    /// The completed response.
    type Response;

    /// Decides on the head of a request.
    fn admit(&self, parts: &mut Parts) -> Verdict<Self::Pass, Self::Wait, S::Response>;

    /// Waits, and decides then.
    fn poll_wait(
        &self,
        wait: &mut Self::Wait,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Verdict<Self::Pass, Self::Wait, S::Response>>;

    /// Takes the service that is ready, for a request that waits: see [`take_ready`]. A gate whose
    /// requests never wait need not clone the service.
    fn hold(service: &mut S, wait: &Self::Wait) -> S;

    /// Notes whether the service runs now. When it panics, the pass is dropped after `true`, and so
    /// knows of the panic wherever it is caught.
    fn set_running(_pass: &mut Self::Pass, _is_running: bool) {}

    /// Returns a rejection once the request must not go on. The service is dropped then.
    fn poll_revoked(_pass: &mut Self::Pass, _cx: &mut Context<'_>) -> Poll<S::Response> {
        Poll::Pending
    }

    /// Completes the response of the service, or a rejection, which has no pass.
    fn complete(pass: Option<&mut Self::Pass>, response: S::Response) -> Self::Response;

    /// Ends a request whose service returned an error.
    fn fail(pass: &mut Self::Pass);
}

/// Has no implementation: a builder is no layer. Its error says what makes one of it.
#[diagnostic::on_unimplemented(
    message = "`{B}` is a builder and not yet a layer: call `.build()`",
    label = "`.build()` is missing"
)]
pub trait IsLayer<B> {}

/// Stands for a builder in [`IsLayer`]: the compiler would report the missing `Layer` of the builder
/// itself.
#[derive(Debug)]
pub struct Unbuilt;

/// Lets the compiler say what is missing where a builder stands in the place of a layer.
macro_rules! is_no_layer {
    ($Builder:ident<$($Of:ident),+>) => {
        #[doc(hidden)]
        impl<S, $($Of),+> tower_layer::Layer<S> for $Builder<$($Of),+>
        where
            crate::gate::Unbuilt: crate::gate::IsLayer<Self>,
        {
            type Service = S;

            fn layer(&self, inner: S) -> S {
                inner
            }
        }
    };
}
pub(crate) use is_no_layer;

/// Says what happens to a request next.
#[derive(Debug)]
pub enum Verdict<P, W, A> {
    /// The service is called.
    Admit(P),
    /// The client receives this response, and the service is not called.
    Reject(A),
    /// The request waits.
    Wait(W),
}

/// Takes the service that is ready. Its clone has to become ready before the next call.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let clone = service.clone();
    mem::replace(service, clone)
}

/// A service with a layer `L` of this crate around it.
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
    pub(crate) fn new(inner: S, layer: L) -> Self {
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

/// Reads something from the head of a request. Boxed, so that the closure does not appear in the
/// type of the layer.
pub(crate) type FromParts<T> = Box<dyn Fn(&Parts) -> T + Send + Sync>;

/// Stores the options that all gates have.
pub(crate) struct GateOptions<R> {
    pub(crate) responder: R,
    pub(crate) exempt: Option<FromParts<bool>>,
    /// Selects the requests that are limited, apart from those that are exempt.
    pub(crate) only: Option<FromParts<bool>>,
    pub(crate) retry_jitter: Duration,
    pub(crate) labels: MetricLabels,
    has_logged_misconfiguration: AtomicBool,
}

impl GateOptions<Problem> {
    pub(crate) fn new(retry_jitter: Duration) -> Self {
        Self {
            responder: Problem::new(),
            exempt: None,
            only: None,
            retry_jitter,
            labels: MetricLabels::default(),
            has_logged_misconfiguration: AtomicBool::new(false),
        }
    }
}

impl<R> GateOptions<R> {
    pub(crate) fn respond_with<R2>(self, responder: R2) -> GateOptions<R2> {
        self.exchange_responder(responder).0
    }

    /// Sets the responder. Returns the one before it, too.
    pub(crate) fn exchange_responder<R2>(self, responder: R2) -> (GateOptions<R2>, R) {
        let Self {
            responder: before,
            exempt,
            only,
            retry_jitter,
            labels,
            has_logged_misconfiguration,
        } = self;
        (
            GateOptions {
                responder,
                exempt,
                only,
                retry_jitter,
                labels,
                has_logged_misconfiguration,
            },
            before,
        )
    }

    #[inline]
    pub(crate) fn is_exempt(&self, parts: &Parts) -> bool {
        self.exempt.as_ref().is_some_and(|exempt| exempt(parts))
            || self.only.as_ref().is_some_and(|only| !only(parts))
    }

    /// Returns a random time, which is added to the wait of a client.
    #[inline]
    pub(crate) fn jitter(&self) -> Duration {
        let max = self.retry_jitter;
        if max.is_zero() {
            Duration::ZERO
        } else {
            max.mul_f64(fastrand::f64())
        }
    }

    /// Logs that no request has a key, and what follows. The mistake is the same for every request,
    /// so it is logged once.
    pub(crate) fn log_misconfiguration(&self, error: &KeyError, consequence: &str) {
        let is_misconfigured = error.kind() == KeyErrorKind::Misconfigured;
        if is_misconfigured
            && !self
                .has_logged_misconfiguration
                .swap(true, Ordering::Relaxed)
        {
            tracing::error!(hint = %error, "{consequence}");
        }
    }

    /// Counts a request that is rejected, and builds its response.
    pub(crate) fn reject<B>(&self, reason: Reason<'_>, parts: &Parts) -> Response<B>
    where
        R: Respond<B>,
    {
        metrics::count_rejection(
            reason.as_str(),
            &self.labels,
            LabelIndex::of(parts, &self.labels),
        );
        let states = reason.states();
        let rejection = Rejection::new(reason, &states, self.jitter(), parts);
        let mut response = self.responder.respond(&rejection);
        let adds_retry_after = self.responder.adds_retry_after(&rejection);
        add_headers(
            &rejection,
            None,
            &ResponseDetails::default(),
            adds_retry_after,
            response.headers_mut(),
        );
        response
    }
}
