use std::{fmt, sync::Arc};

use tollgate::Limiter;
use tollgate_tower::{KeyExtractor, RateLimit, RateLimitBuilder, RateLimitLayer, rejection::Empty};
use tower_layer::Layer;

use super::service::{ChargedService, Settings};
use crate::GrpcStatus;

/// Which messages of a call are charged, beyond the call itself.
///
/// The charge that opens the call pays for the first message in either direction, so a unary call
/// costs what it does without this. Each further message is one unit of the same key: when it
/// begins, before any of it is passed on. Of messages nothing is copied, and while the store is
/// asked nothing more is read.
///
/// A message that is denied ends the call with the status of a denied call:
/// in the trailers of the answer, or in its head where that was not sent yet. The handler finds the
/// status as the error of its request's stream; what it has ready then still goes out, and what it
/// makes of the error does not matter. A handler that is not done is dropped, as it is when a client
/// goes away.
#[derive(Clone, Debug)]
#[must_use = "it charges nothing by itself"]
pub struct Messages {
    direction: Direction,
    limiter: Option<Limiter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Received,
    Sent,
    Both,
}

impl Direction {
    pub(super) fn is_received(self) -> bool {
        self != Self::Sent
    }

    pub(super) fn is_sent(self) -> bool {
        self != Self::Received
    }
}

impl Messages {
    /// What clients send: the requests of client and bidirectional streams.
    pub fn received() -> Self {
        Self { direction: Direction::Received, limiter: None }
    }

    /// What clients are sent: the responses of server and bidirectional streams.
    pub fn sent() -> Self {
        Self { direction: Direction::Sent, limiter: None }
    }

    /// Both.
    pub fn both() -> Self {
        Self { direction: Direction::Both, limiter: None }
    }

    /// Charges them to `limiter`, so that messages have a quota of their own; by default to the
    /// limiter of the call.
    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }
}

/// The option of a builder that charges messages.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{ChargeMessages, Messages, health_and_reflection, key::PeerIp};
/// use tonic::transport::Server;
///
/// let store = MemoryStore::new();
/// let calls = Limiter::new(store.clone(), Policy::token_bucket("calls", Quota::per_second(5)));
/// let messages = Limiter::new(store, Policy::token_bucket("messages", Quota::per_second(100)));
/// let layer = tollgate_tonic::builder(calls, PeerIp::new())
///     .exempt(health_and_reflection())
///     .charge_messages(Messages::both().limiter(messages));
/// let server = Server::builder().layer(layer);
/// # let _ = server;
/// ```
///
/// Put the layer inside that of tonic-web where there is one: the messages of
/// `application/grpc-web-text` are base64, which this layer does not decode. Outside it answers such
/// calls with `INTERNAL`, and the log says why.
pub trait ChargeMessages: Sized {
    /// The layer that is built.
    type Layer;

    /// The layer, which also charges messages: instead of
    /// [`build`](RateLimitBuilder::build).
    #[must_use]
    fn charge_messages(self, messages: Messages) -> Self::Layer;
}

impl<K: KeyExtractor, H> ChargeMessages for RateLimitBuilder<K, GrpcStatus<H>> {
    type Layer = MessagesLayer<K, H>;

    fn charge_messages(self, messages: Messages) -> MessagesLayer<K, H> {
        let answer = Arc::new(self.responder().without_http());
        let settings = Settings { direction: messages.direction, answer, is_misplaced: false.into() };
        MessagesLayer { limit: self.expose_request_limiter(messages.limiter).build(), settings: Arc::new(settings) }
    }
}

/// A rate limit of calls and of their messages, made by [`ChargeMessages::charge_messages`].
pub struct MessagesLayer<K, H = Empty> {
    limit: RateLimitLayer<K, GrpcStatus<H>>,
    settings: Arc<Settings>,
}

impl<S, K, H> Layer<S> for MessagesLayer<K, H> {
    type Service = RateLimit<ChargedService<S>, K, GrpcStatus<H>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.limit.layer(ChargedService::new(inner, Arc::clone(&self.settings)))
    }
}

impl<K, H> Clone for MessagesLayer<K, H> {
    fn clone(&self) -> Self {
        Self { limit: self.limit.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<K, H> fmt::Debug for MessagesLayer<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessagesLayer")
            .field("limit", &self.limit)
            .field("direction", &self.settings.direction)
            .finish_non_exhaustive()
    }
}
