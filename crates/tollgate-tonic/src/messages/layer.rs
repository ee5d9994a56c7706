use std::{fmt, sync::Arc};

use tollgate_tower::{KeyExtractor, RateLimit, RateLimitBuilder, RateLimitLayer, rejection::Empty};
use tower_layer::Layer;

use super::{
    charge::MessageCharge,
    service::{MessageService, Settings},
};
use crate::status::GrpcStatus;

mod sealed {
    use tollgate_tower::RateLimitBuilder;

    use crate::status::GrpcStatus;

    pub trait Sealed {}

    impl<K, H> Sealed for RateLimitBuilder<K, GrpcStatus<H>> {}
}

/// Adds the option [`charge_messages`](Self::charge_messages) to the [`builder`](crate::builder) of a layer.
///
/// The trait is sealed: only this builder implements it.
pub trait RateLimitBuilderExt: sealed::Sealed + Sized {
    /// The layer that the builder makes.
    type Layer;

    /// Builds a layer that charges messages as well as calls. It replaces
    /// [`build`](RateLimitBuilder::build).
    ///
    /// With tonic-web, put this layer inside the `GrpcWebLayer`. The messages of
    /// `application/grpc-web-text` are encoded in base64, and this layer does not decode base64. Outside
    /// the `GrpcWebLayer`, it answers such calls with `INTERNAL`, and the log has the reason.
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tonic::{
    ///     health_and_reflection,
    ///     key::PeerIp,
    ///     messages::{MessageCharge, RateLimitBuilderExt},
    /// };
    /// use tonic::transport::Server;
    ///
    /// let store = MemoryStore::new();
    /// let calls = Limiter::new(store.clone(), Policy::token_bucket("calls", Quota::per_second(5)));
    /// let messages = Limiter::new(store, Policy::token_bucket("messages", Quota::per_second(100)));
    /// let layer = tollgate_tonic::builder(calls, PeerIp::new())
    ///     .exempt(health_and_reflection())
    ///     .charge_messages(MessageCharge::both().limiter(messages));
    /// let server = Server::builder().layer(layer);
    /// # let _ = server;
    /// ```
    #[must_use]
    fn charge_messages(self, charge: MessageCharge) -> Self::Layer;
}

impl<K: KeyExtractor, H> RateLimitBuilderExt for RateLimitBuilder<K, GrpcStatus<H>> {
    type Layer = MessageLayer<K, H>;

    fn charge_messages(self, charge: MessageCharge) -> MessageLayer<K, H> {
        let settings = Settings::new(charge.direction, self.responder().without_http());
        MessageLayer { calls: self.expose_request_limiter(charge.limiter).build(), settings: Arc::new(settings) }
    }
}

/// Limits calls and charges their messages.
///
/// The builder makes it: see [`charge_messages`](RateLimitBuilderExt::charge_messages).
pub struct MessageLayer<K, H = Empty> {
    calls: RateLimitLayer<K, GrpcStatus<H>>,
    settings: Arc<Settings>,
}

impl<S, K, H> Layer<S> for MessageLayer<K, H> {
    type Service = RateLimit<MessageService<S>, K, GrpcStatus<H>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.calls.layer(MessageService::new(inner, Arc::clone(&self.settings)))
    }
}

impl<K, H> Clone for MessageLayer<K, H> {
    fn clone(&self) -> Self {
        Self { calls: self.calls.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<K, H> fmt::Debug for MessageLayer<K, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLayer")
            .field("calls", &self.calls)
            .field("direction", &self.settings.direction())
            .finish_non_exhaustive()
    }
}
