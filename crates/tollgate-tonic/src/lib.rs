//! Rate limits for tonic servers, whose denials a gRPC client of any language understands.
//!
//! It is the middleware of [`tollgate_tower`] with another [responder](GrpcStatus) and more
//! [extractors](key): a denial is the status `RESOURCE_EXHAUSTED` with `RetryInfo`,
//! `QuotaFailure` and `ErrorInfo` in its details, sent as one frame (Trailers-Only), so that a
//! client with a retry policy may try again.
//!
//! Around the whole server:
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//! use tollgate_tonic::key::PeerIp;
//! use tonic::transport::Server;
//!
//! const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(5).with_burst(10));
//!
//! let limiter = Limiter::new(MemoryStore::new(), BURST);
//! let server = Server::builder().layer(tollgate_tonic::layer(limiter, PeerIp::new()));
//! // server.add_service(GreeterServer::new(greeter)).serve(address).await?;
//! # let _ = server;
//! ```
//!
//! Around one service, with `tonic::service::LayerExt::named_layer`; and around an axum router that
//! serves gRPC and HTTP on one port, with [`GrpcStatus::or_http`]. Several quotas in one place,
//! services that are exempt, and what a call costs stand behind [`builder`].
//!
//! A handler that has to see the message first asks the limiter itself and answers with [`status`].
//! A stream is charged when it is opened; the option [`charge_messages`](ChargeMessages::charge_messages)
//! of the builder charges each of its messages too, and the function [`charge_messages`] does in a handler.
//!
//! The metrics of the middleware (feature `metrics`) are labelled `rpc_service` and `rpc_method` for
//! what [`MethodLimiters`] or [`metric_labels`] name, `other` for what clients invent; the log of refusals has
//! `rpc.service` and `rpc.method`.
//!
//! [`RateLimitInterceptor`] is for where an interceptor is all that fits, and says what it cannot
//! do.

mod certificate;
mod form;
mod interceptor;
pub mod key;
mod labels;
mod matching;
mod messages;
mod methods;
mod status;

use form::Form;
use matching::service_and_method;
use tollgate_tower::{HeaderFormat, KeyExtractor, LimiterSource, RateLimitBuilder, RateLimitLayer};

#[cfg(feature = "async-interceptor")]
pub use interceptor::{AsyncRateLimitInterceptor, InterceptFuture};
pub use interceptor::{RateLimitInterceptor, StoreNotInProcess};
pub use labels::metric_labels;
pub use matching::{health_and_reflection, services};
pub use messages::{
    CallBody, ChargeMessages, ChargedMessages, ChargedService, Messages, MessagesFuture, MessagesLayer, charge_messages,
};
pub use methods::MethodLimiters;
pub use status::{GrpcStatus, error_status, status};

/// A layer that answers gRPC calls with a gRPC status: `limits` says how much, a limiter or
/// [`MethodLimiters`]; `key` says who.
///
/// A request that is no gRPC call is answered with its HTTP status and an empty body.
#[must_use]
pub fn layer<K: KeyExtractor>(limits: impl Into<LimiterSource>, key: K) -> RateLimitLayer<K, GrpcStatus> {
    builder(limits, key).build()
}

/// A builder of such a layer, for the options.
///
/// Unlike over HTTP, answers do not tell in metadata what is left, unless
/// [`fields`](RateLimitBuilder::header_format) names the words to do so.
///
/// ```
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{GrpcStatus, health_and_reflection, key::Metadata};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
/// let layer = tollgate_tonic::builder(limiter, Metadata::new("x-api-key"))
///     .exempt(health_and_reflection())
///     .cost(|parts| if parts.uri.path().ends_with("/Export") { Cost::new(5) } else { Cost::ONE })
///     .respond_with(GrpcStatus::new().domain("greeter.example.com").pushback())
///     .build();
/// # let _ = layer;
/// ```
pub fn builder<K: KeyExtractor>(limits: impl Into<LimiterSource>, key: K) -> RateLimitBuilder<K, GrpcStatus> {
    RateLimitLayer::builder(limits, key).respond_with(GrpcStatus::new()).header_format(HeaderFormat::None).rpc_name(
        |parts| {
            Form::of(&parts.headers)?;
            service_and_method(parts.uri.path())
        },
    )
}
