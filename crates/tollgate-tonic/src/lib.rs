//! Limits the rate of calls to tonic servers, and denies calls with a status that every gRPC client
//! understands.
//!
//! **Start with the guides** of [`tollgate`](tollgate::guide), about algorithms, outages and
//! production, and of [`tollgate_tower`](tollgate_tower::guide), about keys, several limits, and
//! types to write down.
//!
//! This crate is the middleware of [`tollgate_tower`] with a gRPC [responder](GrpcStatus) and gRPC
//! [key extractors](key). A denied call ends with the status `RESOURCE_EXHAUSTED`. The status
//! details hold `RetryInfo`, `QuotaFailure` and `ErrorInfo`. The response is a single HTTP/2 frame
//! (Trailers-Only), so that a client with a retry policy may retry the call.
//!
//! # Limit a whole server
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//! use tollgate_tonic::key::PeerIp;
//! use tonic::transport::Server;
//!
//! const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(5).with_burst(10));
//!
//! let limiter = Limiter::new(MemoryStore::new(), BURST);
//! let layer = tollgate_tonic::layer(limiter.clone(), PeerIp);
//! let server = Server::builder().layer(layer);
//! // server.add_service(GreeterServer::new(greeter)).serve(address).await?;
//! assert_eq!(limiter.name(), "burst"); // The name in logs and metrics.
//! # let _ = server;
//! ```
//!
//! # What do you want to do?
//!
//! | goal | use |
//! |---|---|
//! | limit all services of a server | [`layer`] with `Server::builder().layer(…)` |
//! | limit one service | [`layer`] with `tonic::service::LayerExt::named_layer` |
//! | set options: exempt services, cost of a call, status details | [`builder`] |
//! | give services and methods different quotas | [`MethodLimiters`] |
//! | change quotas while the server runs | [`LimiterHandle`](tollgate::LimiterHandle) |
//! | give each customer a quota of its own | [`TenantLimiters`](tollgate::tenants::TenantLimiters) |
//! | read limits from a file that may change | `RuleLimiter::for_requests` of the crate `tollgate-rules` |
//! | serve gRPC and HTTP on one port | [`builder`] with [`GrpcStatus::or_http`] |
//! | charge each message of a stream | [`messages`] |
//! | decide in a handler, after the message was read | [`Limiter::check`](tollgate::Limiter::check), then [`status`] |
//! | limit where only an interceptor fits | [`RateLimitInterceptor`], which lists its restrictions |
//!
//! An interceptor that denies calls needs a [`DrainLayer`](tollgate_tower::drain::DrainLayer)
//! outside it. Otherwise the server may close the connection of a client after many denied calls:
//! [`RateLimitInterceptor`] explains why. The [`layer`] of this crate needs none.
//!
//! A stream costs one unit when the client opens it. [`messages`] adds a charge for each message.
//!
//! # Test a service
//!
//! The feature `test-util` adds a store with fixed answers, and a store that fails on command. The
//! [guide](tollgate_tower::guide::testing_your_service) shows both. A test passes the address of
//! the client as an extension of the request:
//!
//! ```
//! use std::{convert::Infallible, net::SocketAddr, time::Duration};
//!
//! use http::{Request, Response};
//! use tollgate::{Limiter, Policy, Quota, test_util::ScriptedStore};
//! use tollgate_tonic::key::PeerIp;
//! use tonic::{Status, body::Body};
//! use tonic_types::StatusExt;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = ScriptedStore::deny(Duration::from_secs(7));
//! let limiter = Limiter::new(store.clone(), Policy::token_bucket("burst", Quota::per_second(5)));
//! let service = tollgate_tonic::layer(limiter, PeerIp)
//!     .layer(service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::default())) }));
//!
//! let peer: SocketAddr = ([192, 0, 2, 7], 50_000).into();
//! let call = Request::post("/helloworld.Greeter/SayHello").header("content-type", "application/grpc").extension(peer);
//! let response = service.oneshot(call.body(Body::default()).unwrap()).await.unwrap();
//! let status = Status::from_header_map(response.headers()).unwrap();
//! assert_eq!(status.code(), tonic::Code::ResourceExhausted);
//! assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(7)));
//! assert_eq!(store.checks()[0].key(), &"192.0.2.7".parse::<std::net::IpAddr>().unwrap().into());
//! # }
//! ```
//!
//! # Metrics and logs
//!
//! With the feature `metrics`, the counters of the middleware have the labels `rpc_service` and
//! `rpc_method`. Only names from a fixed list become labels: the names that have a limiter in
//! [`MethodLimiters`], or the names given to [`metric_labels`]. All other names are counted as
//! `other`, so a client cannot create labels. The log line of a denied call has the fields
//! `rpc.service` and `rpc.method`.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | adds |
//! |---|---|
//! | `axum` | [`PeerIp`](key::PeerIp) behind `axum::serve`, and charges for the messages in axum's bodies: for gRPC and HTTP on one port |
//! | `metrics` | counters and histograms through the `metrics` facade |
//! | `client-certificate` | `key::ClientCertificate`, the subject of the client's TLS certificate as the key |
//! | `async-interceptor` | `AsyncRateLimitInterceptor`, an interceptor that waits for the store |
//! | `test-util` | `test_util`, with stores for the tests of a service: fixed answers, and outages on command |
//!
//! To count in Redis, enable the feature `redis` of the crate `tollgate`.

// Only the two entries stand here, `layer` and `builder`. What each room adds is in its own folder
// or file.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod interceptor;
pub mod key;
pub mod messages;
mod method_limiters;
mod metric_labels;
mod path;
mod protocol;
mod services;
mod status;

use path::service_and_method;
use protocol::Protocol;
use tollgate_tower::{HeaderFormat, KeyExtractor, LimiterSource, RateLimitBuilder, RateLimitLayer};

#[cfg(feature = "async-interceptor")]
pub use interceptor::{AsyncRateLimitInterceptor, InterceptFuture};
pub use interceptor::{RateLimitInterceptor, StoreNotInProcess};
pub use method_limiters::MethodLimiters;
pub use metric_labels::metric_labels;
pub use services::{health_and_reflection, services};
pub use status::{GrpcStatus, error_status, growth_status, status};
#[cfg(feature = "test-util")]
pub use tollgate_tower::test_util;

/// Returns a layer that limits gRPC calls, with the default options.
///
/// `limits` is a [`Limiter`](tollgate::Limiter), a table of [`MethodLimiters`], or any other
/// [`LimiterSource`]: limits that change while the server runs, or the limits of tenants. `key`
/// finds the key of a call: calls with the same key share a quota.
///
/// A request that is not a gRPC call is limited too. Its rejection is an HTTP status with an empty
/// body. [`builder`] sets options.
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::key::Metadata;
/// use tonic::body::Body;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_minute(1)));
/// let layer = tollgate_tonic::layer(limiter, Metadata::new("x-api-key"));
///
/// let service = layer.layer(service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::default())) }));
/// let call = || {
///     let call = Request::post("/helloworld.Greeter/SayHello").header("content-type", "application/grpc");
///     call.header("x-api-key", "acme").body(Body::default()).unwrap()
/// };
/// let allowed = service.clone().oneshot(call()).await.unwrap();
/// assert!(!allowed.headers().contains_key("grpc-status"));
/// let denied = service.oneshot(call()).await.unwrap();
/// assert_eq!(denied.headers()["grpc-status"], "8"); // RESOURCE_EXHAUSTED
/// # }
/// ```
#[must_use]
pub fn layer<K: KeyExtractor>(
    limits: impl Into<LimiterSource>,
    key: K,
) -> RateLimitLayer<K, GrpcStatus> {
    builder(limits, key).build()
}

/// Returns a builder of a layer that limits gRPC calls, to set options.
///
/// The arguments are the same as for [`layer`]. Unlike the HTTP middleware, the layer by default
/// does not send the remaining quota in the response metadata:
/// [`header_format`](RateLimitBuilder::header_format) turns it on. A denied gRPC call by default
/// has no `retry-after`: [`GrpcStatus::retry_after`] turns it on.
///
/// ```
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{GrpcStatus, health_and_reflection, key::Metadata};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
/// let layer = tollgate_tonic::builder(limiter, Metadata::new("x-api-key"))
///     .exempt(health_and_reflection())
///     .cost(|parts| if parts.uri.path().ends_with("/Export") { Cost::new(5) } else { Cost::ONE })
///     .respond_with(GrpcStatus::new().domain("greeter.example.com").pushback(true))
///     .build();
/// # let _ = layer;
/// ```
pub fn builder<K: KeyExtractor>(
    limits: impl Into<LimiterSource>,
    key: K,
) -> RateLimitBuilder<K, GrpcStatus> {
    RateLimitLayer::builder(limits, key)
        .respond_with(GrpcStatus::new())
        .header_format(HeaderFormat::None)
        .rpc_name(|parts| {
            Protocol::detect(&parts.headers)?;
            service_and_method(parts.uri.path())
        })
}

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
