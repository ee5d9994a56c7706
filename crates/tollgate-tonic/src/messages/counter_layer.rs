//! The middleware that adds the messages of each response to the meter of its call.
//! How messages are counted is in `counter.rs`. A layer that can end a stream is in `layer.rs`.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate_tower::{Meter, body::GuardedBody};
use tower_layer::Layer;
use tower_service::Service;

use super::counter::MessageCounter;
use crate::protocol::Protocol;

/// Counts the messages of each response with the [`Meter`] of its call.
///
/// Place it inside a layer that [reserves](tollgate_tower::RateLimitBuilder::reserve). When the
/// response ends, fails or is dropped, the call costs the messages that the server has sent. This
/// takes two trips to the store for a stream of any length. [`MessageLayer`](super::MessageLayer)
/// makes a trip for each message instead, and so can end a stream in the middle.
///
/// A response without messages, such as an error, costs nothing. A call that ends without a
/// response keeps its estimate. A call without a meter passes unchanged, and so do other requests.
/// With tonic-web, put this layer inside the `GrpcWebLayer`: the messages of
/// `application/grpc-web-text` are encoded in base64, and are not counted.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{key::Metadata, messages::MessageCounterLayer};
/// use tonic::transport::Server;
///
/// let policies = [
///     Policy::token_bucket("calls", Quota::per_second(5)),
///     Policy::token_bucket("messages", Quota::per_minute(10_000)),
/// ];
/// let limiter = Limiter::new(MemoryStore::new(), policies);
/// let server = Server::builder()
///     .layer(
///         tollgate_tonic::builder(limiter, Metadata::new("x-api-key"))
///             .reserve(|_call| [("calls", 1), ("messages", 100)])
///             .build(),
///     )
///     .layer(MessageCounterLayer::for_policy("messages"));
/// # let _ = server;
/// ```
#[derive(Clone, Debug, Default)]
pub struct MessageCounterLayer {
    policy: Option<Arc<str>>,
}

impl MessageCounterLayer {
    /// Creates a layer that counts for all policies that have no [counter](Meter::counter) of their
    /// own.
    #[must_use]
    pub fn new() -> Self {
        Self { policy: None }
    }

    /// Creates a layer that counts for the policy with this name. A meter without that policy
    /// counts nothing.
    #[must_use]
    pub fn for_policy(policy: impl Into<Arc<str>>) -> Self {
        Self {
            policy: Some(policy.into()),
        }
    }
}

impl<S> Layer<S> for MessageCounterLayer {
    type Service = MessageCounterService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        MessageCounterService {
            inner,
            policy: self.policy.clone(),
        }
    }
}

/// Adds messages to the meter of a call.
pub type Count = Box<dyn FnMut(u64) + Send>;

/// Counts the messages of the responses of an inner service. [`MessageCounterLayer`] creates it.
#[derive(Clone, Debug)]
pub struct MessageCounterService<S> {
    inner: S,
    policy: Option<Arc<str>>,
}

impl<S, Q, A> Service<Request<Q>> for MessageCounterService<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    A: Body,
{
    type Response = Response<GuardedBody<A, MessageCounter<Count>>>;
    type Error = S::Error;
    type Future = CountedResponse<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let is_readable = matches!(
            Protocol::detect(request.headers()),
            Some(Protocol::Grpc | Protocol::GrpcWeb)
        );
        let meter = request.extensions().get::<Meter>().filter(|_| is_readable);
        let count = meter.and_then(|meter| match &self.policy {
            None => {
                let meter = meter.clone();
                Some(Box::new(move |messages| meter.add(messages)) as Count)
            }
            Some(policy) => {
                let counter = meter.counter(policy)?;
                Some(Box::new(move |messages| counter.add(messages)))
            }
        });
        CountedResponse {
            inner: self.inner.call(request),
            count,
        }
    }
}

pin_project! {
    /// Resolves to the response of a [`MessageCounterService`].
    #[must_use = "futures do nothing unless polled"]
    pub struct CountedResponse<F> {
        #[pin]
        inner: F,
        count: Option<Count>,
    }
}

impl<F, A, E> Future for CountedResponse<F>
where
    F: Future<Output = Result<Response<A>, E>>,
    A: Body,
{
    type Output = Result<Response<GuardedBody<A, MessageCounter<Count>>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx))?;
        Poll::Ready(Ok(response.map(|body| match this.count.take() {
            Some(mut count) => {
                // No message is a count too.
                count(0);
                GuardedBody::new(body, MessageCounter::new(count))
            }
            None => GuardedBody::unguarded(body),
        })))
    }
}

tollgate::debug_fields! { CountedResponse<F>: .. }
