//! Limits requests as Tower middleware.
//!
//! **Start with the [guide]**: keys, proxies and clients that lie, several limits, tests of your
//! service, the types of layers. The [guide of `tollgate`](https://docs.rs/tollgate/latest/tollgate/guide/index.html) is about
//! algorithms, outages and production.
//!
//! A [`RateLimitLayer`] checks a [`Limiter`](tollgate_core::Limiter) before it calls the inner service.
//! When the quota is spent, the layer responds with 429, `Retry-After`, the rate limit headers and
//! a problem document, and the service is not called. A [key extractor](key) finds the key of a
//! request. Requests with the same key share a quota.
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
//! use http::Request;
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//! use tollgate_tower::{RateLimitLayer, key::PeerIp};
//! use tower::ServiceExt;
//!
//! const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(5).with_burst(10));
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limiter = Limiter::new(MemoryStore::new(), BURST);
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .route_layer(RateLimitLayer::new(limiter, PeerIp))
//!     .route("/healthz", get(|| async { "ok" }));
//!
//! // `app.into_make_service_with_connect_info::<SocketAddr>()` adds the address of the peer to each
//! // request. This example adds it by hand.
//! let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 50_000)));
//! let request = Request::get("/").extension(peer).body(Body::empty()).unwrap();
//! let response = app.oneshot(request).await.unwrap();
//! assert_eq!(response.headers()["ratelimit"], r#""burst";r=9;t=1"#);
//! # }
//! ```
//!
//! # What do you want to do?
//!
//! | goal | use |
//! |---|---|
//! | limit a router, a route, a service | [`RateLimitLayer`]; [several layers](guide::layers) around each other for different keys |
//! | limit by address, user, API key, route | an extractor of [`key`]; behind a proxy [`ForwardedIp`](key::ForwardedIp) |
//! | set options: exempt requests, costs, waits, trials, header formats | [`RateLimitBuilder`] |
//! | give customers different limits | a [`LimiterSource`], such as [`TieredLimiters`] |
//! | limit by what stands in the body, such as a user name | a [`HandlerLimiter`] in the handler, which answers as a layer does |
//! | charge what is known at the end, such as tokens or bytes | [`RateLimitBuilder::reserve`], and the module [`reservation`] |
//! | end a response where its reservation ends | the crate `tollgate-metered` |
//! | answer with a body of your own | [`RateLimitBuilder::respond_with`], and the module [`rejection`] |
//! | tell callers what is left | a [`StateService`], or [`Decisions`] in the handler |
//! | limit requests at the same time, over all replicas | a [`ConcurrencyLayer`] |
//! | protect a service that becomes slow | the crate `tollgate-overload` |
//! | keep calls to another service below its limit | the crate `tollgate-outgoing` |
//! | charge the messages of a WebSocket | `ws::LimitedSocket` |
//! | reject a request in a handler before its body was read | a [`DrainLayer`](drain::DrainLayer) around it |
//! | admit or reject requests by rules of your own | the [gate] on which all of these layers stand |
//! | limit a gRPC server, or limits from a file | the crates `tollgate-tonic` and `tollgate-rules` |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `axum` | yes | [`PeerIp`](key::PeerIp) reads the peer's address from axum; `key::MatchedRoute`; [`Decisions`] and [`Meter`] are extractors |
//! | `tonic` | no | [`PeerIp`](key::PeerIp) reads the peer's address from tonic, with and without TLS |
//! | `ws` | no | `ws::LimitedSocket` charges the messages of axum's WebSockets |
//! | `metrics` | no | the metrics below, through the `metrics` facade |
//! | `test-util` | no | `test_util`, with stores for the tests of a service: fixed answers, and outages on command |
//!
//! # Logs and metrics
//!
//! Denials are logged at `debug`. The limiter logs outages at `warn`. No log line contains the key.
//! With the feature `metrics` the layer records:
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `tollgate_decisions_total` | `policy`, `outcome` | decisions: `allowed`, `denied`, or `shadowed` for a denial in [shadow mode](RateLimitBuilder::shadow) or outside of the [enforced share](RateLimitBuilder::enforcement). Policies that are [looked up](LimiterSource) are counted by name for the first 64 lists of names, and as `other` after that |
//! | `tollgate_rejections_total` | `reason` | rejections: the reason is one of the words of [`Reason::as_str`](rejection::Reason::as_str) |
//!
//! The feature also enables the [metrics of the limiters](https://docs.rs/tollgate/latest/tollgate/index.html#metrics): checks of layers and
//! of all other callers, durations, outages and errors, by the name of the limiter. Install the
//! recorder before the first request. No label value comes from a request.
//! [`metric_labels`](RateLimitBuilder::metric_labels) adds labels from a fixed list to the first
//! two metrics.

// Nothing but the documentation for users and re-exports stands here: each kind of layer has its
// own folder.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod body;
mod charge;
pub mod concurrency;
mod decisions;
pub mod drain;
pub mod gate;
pub mod guide;
mod headers;
pub mod key;
mod labels;
mod meter;
mod metrics;
mod outer_layers;
mod rate_limit;
pub mod rejection;
mod rpc;
#[cfg(feature = "ws")]
pub mod ws;

/// The service and the future of all layers that admit or reject requests: for types that you write
/// down, and for the errors of the compiler that name them.
pub mod future {
    pub use crate::{
        gate::{Gated, ResponseFuture},
        rate_limit::StateFuture,
    };
}

pub use charge::Outcome;
pub use concurrency::ConcurrencyLayer;
pub use decisions::Decisions;
pub use headers::{HeaderFormat, QuotaUnit, ResetFormat, received};
pub use key::{KeyExtractor, key_fn};
pub use labels::MetricLabels;
pub use meter::{Counter, Meter};
pub use rate_limit::{
    Admitted, HandlerLimiter, JointCheck, JointDecision, JointFuture, LimiterSource,
    MeteredReservation, RateLimit, RateLimitBuilder, RateLimitLayer, Rejected, RequestLimiter,
    ReservationLayer, StateService, TieredLimiters, reservation,
};
pub use rejection::{Rejection, Respond, respond_fn};

#[cfg(feature = "test-util")]
pub use tollgate_core::test_util;

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
