//! The layer that users add to charge messages: it puts the service of `service.rs` inside a rate
//! limit for calls.
//! It decides nothing itself.

use std::sync::Arc;

use tollgate_tower::{KeyExtractor, RateLimit, RateLimitBuilder, RateLimitLayer, rejection::Empty};
use tower_layer::Layer;

use super::{
    charge::MessageCharge,
    service::{MessageService, Settings},
};
use crate::status::GrpcStatus;

/// Limits calls and charges their messages.
///
/// With tonic-web, put this layer inside the `GrpcWebLayer`. The messages of
/// `application/grpc-web-text` are encoded in base64, and this layer does not decode base64.
/// Outside the `GrpcWebLayer`, it answers such calls with `INTERNAL`, and the log has the reason.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{
///     health_and_reflection,
///     key::PeerIp,
///     messages::{MessageCharge, MessageLayer},
/// };
/// use tonic::transport::Server;
///
/// let store = MemoryStore::new();
/// let calls = Limiter::new(store.clone(), Policy::token_bucket("calls", Quota::per_second(5)));
/// let messages = Limiter::new(store, Policy::token_bucket("messages", Quota::per_second(100)));
/// let builder = tollgate_tonic::builder(calls, PeerIp).exempt(health_and_reflection());
/// let server = Server::builder().layer(MessageLayer::new(builder, MessageCharge::both().limiter(messages)));
/// # let _ = server;
/// ```
pub struct MessageLayer<K, H = Empty> {
    calls: RateLimitLayer<K, GrpcStatus<H>>,
    settings: Arc<Settings>,
}

impl<K: KeyExtractor, H> MessageLayer<K, H> {
    /// Creates a layer of the [builder](crate::builder) of a layer for calls.
    #[must_use]
    pub fn new(builder: RateLimitBuilder<K, GrpcStatus<H>>, charge: MessageCharge) -> Self {
        let responder = builder.responder().without_http();
        let calls = builder.expose_request_limiter(charge.own_limiter()).build();
        Self {
            calls,
            settings: Arc::new(Settings::new(charge, responder)),
        }
    }
}

impl<S, K, H> Layer<S> for MessageLayer<K, H> {
    type Service = RateLimit<MessageService<S>, K, GrpcStatus<H>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.calls
            .layer(MessageService::new(inner, Arc::clone(&self.settings)))
    }
}

impl<K, H> Clone for MessageLayer<K, H> {
    fn clone(&self) -> Self {
        Self {
            calls: self.calls.clone(),
            settings: Arc::clone(&self.settings),
        }
    }
}

tollgate::debug_fields! { MessageLayer<K, H>: calls, charge = .settings.charge, .. }
