//! Wraps the bodies of a call so that their messages are charged, and ends the call when a message
//! of its request is denied.
//! The charge for the call itself is made further out, by the rate limit of `tollgate_tower`.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tollgate_tower::RequestLimiter;
use tonic::Status;
use tower_service::Service;

use super::{
    body::{ChargedBody, Denial, Direction, MessageBody, Meter, poll_denial},
    charge::MessageCharge,
};
use crate::{protocol::Protocol, status::GrpcStatus};

/// Charges the messages of the calls that it passes to the inner service.
///
/// A [`MessageLayer`](super::MessageLayer) makes it, and puts it inside the rate limit that charges
/// the calls.
#[derive(Clone)]
pub struct MessageService<S> {
    inner: S,
    settings: Arc<Settings>,
}

/// The settings that all clones of a service share.
pub(super) struct Settings {
    pub(super) charge: MessageCharge,
    responder: Arc<GrpcStatus>,
    base64_was_logged: AtomicBool,
}

impl<S> MessageService<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S, Q, A> Service<Request<Q>> for MessageService<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    Q: MessageBody,
    A: MessageBody,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        // A call that no limit applies to has a limiter that charges nothing.
        let limiter = request
            .extensions_mut()
            .remove::<RequestLimiter>()
            .filter(|limiter| limiter.limiter().is_some());
        let (Some(protocol), Some(limiter)) = (Protocol::detect(request.headers()), limiter) else {
            return ResponseFuture {
                state: ResponseState::NotCharged {
                    future: self.inner.call(request),
                },
            };
        };
        if protocol == Protocol::GrpcWebText {
            let response = Some(self.settings.reject_base64());
            return ResponseFuture {
                state: ResponseState::Rejected { response },
            };
        }
        let Settings {
            charge, responder, ..
        } = &*self.settings;
        let meter = |is_charged: bool| {
            is_charged.then(|| Meter::new(limiter.clone(), Arc::clone(responder)))
        };
        let (mut denial, sent) = (None, meter(charge.is_sent()));
        if let Some(received) = meter(charge.is_received()) {
            let (response, denied) = oneshot::channel();
            denial = Some(denied);
            let direction = Direction::Received(Some(response));
            request =
                request.map(|body| Q::charged(ChargedBody::new(body, Some(received), direction)));
        }
        let call = Call {
            denial,
            sent,
            protocol,
        };
        ResponseFuture {
            state: ResponseState::Charged {
                future: self.inner.call(request),
                call: Some(call),
            },
        }
    }
}

impl Settings {
    pub(super) fn new(charge: MessageCharge, responder: GrpcStatus) -> Self {
        Self {
            charge,
            responder: Arc::new(responder),
            base64_was_logged: false.into(),
        }
    }

    /// Rejects a call whose messages are encoded in base64, and logs the reason once.
    fn reject_base64<B: Default>(&self) -> Response<B> {
        if !self.base64_was_logged.swap(true, Ordering::Relaxed) {
            tracing::error!(
                hint = "put this layer inside the `GrpcWebLayer` of tonic-web",
                "a layer that charges messages cannot read application/grpc-web-text"
            );
        }
        Protocol::GrpcWebText.trailers_only(Status::internal("internal error"))
    }
}

/// The parts of a call that its response needs.
struct Call {
    denial: Denial,
    sent: Option<Meter>,
    protocol: Protocol,
}

impl Call {
    /// Charges the messages of the response.
    fn charge<A: MessageBody>(self, response: Response<A>) -> Response<A> {
        // A Trailers-Only response has no messages.
        if response.headers().contains_key(Status::GRPC_STATUS) {
            return response;
        }
        let direction = Direction::Sent(self.protocol, self.denial);
        response.map(|body| A::charged(ChargedBody::new(body, self.sent, direction)))
    }
}

pin_project! {
    /// Resolves to the response of a [`MessageService`].
    // Written by hand: adds no allocation per call, and ends the call while the handler still
    // waits.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, A> {
        #[pin]
        state: ResponseState<F, A>,
    }
}

pin_project! {
    #[project = ResponseStateProj]
    enum ResponseState<F, A> {
        NotCharged { #[pin] future: F },
        Charged { #[pin] future: F, call: Option<Call> },
        Rejected { response: Option<Response<A>> },
    }
}

impl<F, A, E> Future for ResponseFuture<F, A>
where
    F: Future<Output = Result<Response<A>, E>>,
    A: MessageBody,
{
    type Output = F::Output;

    /// # Panics
    ///
    /// Panics when it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        const POLLED_AGAIN: &str = "the future was polled after it was ready";
        match self.project().state.project() {
            ResponseStateProj::NotCharged { future } => future.poll(cx),
            ResponseStateProj::Rejected { response } => {
                Poll::Ready(Ok(response.take().expect(POLLED_AGAIN)))
            }
            ResponseStateProj::Charged { future, call } => {
                let response = future.poll(cx);
                // The response headers are not sent yet, so the status can replace the whole
                // response.
                let denied = call
                    .as_mut()
                    .and_then(|call| Some((poll_denial(&mut call.denial, cx)?, call.protocol)));
                if let Some((status, protocol)) = denied {
                    return Poll::Ready(Ok(protocol.trailers_only(status)));
                }
                response.map_ok(|response| call.take().expect(POLLED_AGAIN).charge(response))
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for MessageService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageService")
            .field("inner", &self.inner)
            .field("charge", &self.settings.charge)
            .finish_non_exhaustive()
    }
}

tollgate::debug_fields! { ResponseFuture<F, A>: .. }
