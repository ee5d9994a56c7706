//! Tests of the bodies that charge messages.

mod closing;
mod metered_body;
mod response_body;
mod service;

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use tollgate::{Limiter, MemoryStore, Policy, Quota, Store, store::Clock};
use tollgate_tower::{RateLimitLayer, RequestLimiter, key::Global};
use tower::{Layer, ServiceExt, service_fn};

use super::metered_body::Meter;
use crate::status::GrpcStatus;

/// Returns a store whose clock does not move.
fn frozen_store() -> MemoryStore {
    MemoryStore::builder().clock(Clock::manual(1_800_000_000_000_000)).build()
}

/// Returns the limiter of an allowed call, with this many units left for messages.
async fn limiter(store: impl Store + Clone, units: u64) -> RequestLimiter {
    limiter_of(store, Policy::token_bucket("messages", Quota::per_day(units))).await
}

/// Returns the limiter of an allowed call, with this policy for messages.
async fn limiter_of(store: impl Store, policy: Policy) -> RequestLimiter {
    let messages = Limiter::new(store, policy);
    let calls = Limiter::new(MemoryStore::new(), Policy::token_bucket("calls", Quota::per_day(1)));
    let layer = RateLimitLayer::builder(calls, Global).expose_request_limiter(Some(messages)).build();
    let service = layer.layer(service_fn(|request: Request<String>| async move {
        let mut response = Response::new(String::new());
        response.extensions_mut().insert(request.extensions().get::<RequestLimiter>().unwrap().clone());
        Ok::<_, Infallible>(response)
    }));
    let response = service.oneshot(Request::new(String::new())).await.unwrap();
    response.extensions().get::<RequestLimiter>().unwrap().clone()
}

/// Returns a meter that charges `limiter`.
fn meter(limiter: RequestLimiter) -> Option<Meter> {
    Some(Meter::new(limiter, Arc::new(GrpcStatus::new())))
}

/// Encodes a message of this length.
fn message(length: usize) -> Vec<u8> {
    let mut message = vec![0];
    message.extend((length as u32).to_be_bytes());
    message.resize(5 + length, 1);
    message
}

/// A step of a [`ScriptedBody`].
enum Step {
    Data(Vec<u8>),
    Trailers,
    Error,
    Pending,
}

/// Takes these steps, one in each poll, and then ends.
struct ScriptedBody {
    steps: VecDeque<Step>,
    /// Is dropped with the body.
    _held: Arc<()>,
}

impl ScriptedBody {
    /// Returns the body, and a reference that is dead when the body is dropped.
    fn new(steps: impl IntoIterator<Item = Step>) -> (Self, Weak<()>) {
        let held = Arc::new(());
        let is_held = Arc::downgrade(&held);
        (Self { steps: steps.into_iter().collect(), _held: held }, is_held)
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let Some(step) = self.steps.pop_front() else { return Poll::Ready(None) };
        Poll::Ready(Some(match step {
            Step::Data(bytes) => Ok(Frame::data(bytes.into())),
            Step::Trailers => Ok(Frame::trailers(HeaderMap::from_iter([(
                HeaderName::from_static("grpc-status"),
                HeaderValue::from_static("0"),
            )]))),
            Step::Error => Err("the handler failed"),
            Step::Pending => return Poll::Pending,
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }
}
