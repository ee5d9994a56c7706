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
    CallBody, Direction,
    body::{Received, Refusal, Sent},
    toll::{Toll, Tolled},
};
use crate::{GrpcStatus, form::Form};

/// A service whose messages are charged, inside the rate limit that charges its calls; made by
/// [`MessagesLayer`](super::MessagesLayer).
#[derive(Clone)]
pub struct ChargedService<S> {
    inner: S,
    settings: Arc<Settings>,
}

/// What all clones have in common.
pub(super) struct Settings {
    pub(super) direction: Direction,
    pub(super) answer: Arc<GrpcStatus>,
    pub(super) is_misplaced: AtomicBool,
}

impl<S> ChargedService<S> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self { inner, settings }
    }
}

impl<S, Q, A> Service<Request<Q>> for ChargedService<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    Q: CallBody,
    A: CallBody,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = MessagesFuture<S::Future, A>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        let account = request.extensions_mut().remove::<RequestLimiter>();
        let (Some(form), Some(account)) = (Form::of(request.headers()), account) else {
            return MessagesFuture { state: State::Free { future: self.inner.call(request) } };
        };
        let settings = &self.settings;
        if form == Form::WebText {
            return MessagesFuture { state: State::Answered { response: Some(settings.misplaced(form)) } };
        }
        let toll = |is_charged: bool| is_charged.then(|| Toll::new(account.clone(), Arc::clone(&settings.answer)));
        let (received, sent) = (toll(settings.direction.is_received()), toll(settings.direction.is_sent()));
        let (request, refusal) = match received {
            Some(toll) => {
                let (denied, refusal) = oneshot::channel();
                let body = |body| Q::from_body(Received::new(Tolled::new(body, Some(toll)), denied));
                (request.map(body), Refusal::new(refusal))
            }
            None => (request, Refusal::default()),
        };
        let call = Call { refusal, sent, form };
        MessagesFuture { state: State::Charged { future: self.inner.call(request), call: Some(call) } }
    }
}

impl Settings {
    /// The messages of base64 cannot be told apart without decoding them.
    fn misplaced<B: Default>(&self, form: Form) -> Response<B> {
        if !self.is_misplaced.swap(true, Ordering::Relaxed) {
            tracing::error!(
                hint = "put it inside the `GrpcWebLayer` of tonic-web",
                "a layer that charges messages cannot read application/grpc-web-text"
            );
        }
        form.trailers_only(Status::internal("internal error"))
    }
}

/// What becomes of the answer.
struct Call {
    refusal: Refusal,
    sent: Option<Toll>,
    form: Form,
}

impl Call {
    /// The service's response, its messages charged.
    fn charge<A: CallBody>(self, response: Response<A>) -> Response<A> {
        if response.headers().contains_key(Status::GRPC_STATUS) {
            return response;
        }
        response.map(|body| A::from_body(Sent::new(Tolled::new(body, self.sent), self.refusal, self.form)))
    }
}

pin_project! {
    /// The response of a [`ChargedService`].
    #[must_use = "futures do nothing unless polled"]
    pub struct MessagesFuture<F, A> {
        #[pin]
        state: State<F, A>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, A> {
        Free { #[pin] future: F },
        Charged { #[pin] future: F, call: Option<Call> },
        Answered { response: Option<Response<A>> },
    }
}

impl<F, A, E> Future for MessagesFuture<F, A>
where
    F: Future<Output = Result<Response<A>, E>>,
    A: CallBody,
{
    type Output = F::Output;

    /// # Panics
    ///
    /// When polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().state.project() {
            StateProj::Free { future } => future.poll(cx),
            StateProj::Answered { response } => Poll::Ready(Ok(response.take().expect("a response is taken once"))),
            StateProj::Charged { future, call } => {
                let response = future.poll(cx);
                // Before the head is sent the whole answer can be the status.
                let refused = call.as_mut().and_then(|call| Some((call.refusal.poll(cx)?, call.form)));
                if let Some((status, form)) = refused {
                    return Poll::Ready(Ok(form.trailers_only(status)));
                }
                response.map_ok(|response| call.take().expect("a response is charged once").charge(response))
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for ChargedService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargedService")
            .field("inner", &self.inner)
            .field("direction", &self.settings.direction)
            .finish_non_exhaustive()
    }
}

impl<F, A> fmt::Debug for MessagesFuture<F, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessagesFuture").finish_non_exhaustive()
    }
}
