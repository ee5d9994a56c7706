//! Rate limits as Tower middleware.
//!
//! A [`RateLimitLayer`] asks a [`Limiter`](tollgate::Limiter) before it calls the service inside,
//! and answers by itself when the limiter says no: 429 with `Retry-After`, the `RateLimit` fields
//! and a problem document. Which requests share a quota is what the [key] says.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//! use tollgate_tower::{RateLimitLayer, key::PeerIp};
//!
//! const BURST: Policy = Policy::token_bucket("burst", Quota::per_second(5).with_burst(10));
//!
//! let limiter = Limiter::new(MemoryStore::new(), BURST);
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .route_layer(RateLimitLayer::new(limiter, PeerIp::new()))
//!     .route("/healthz", get(|| async { "well" }));
//! // Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, which tells the peer.
//! # let _ = app;
//! ```
//!
//! # Stacking
//!
//! Limits on the same key belong in one limiter, where they are decided together, all or nothing.
//! Stack layers for different keys: on the router, on a nested router, on a route. Each layer
//! decides by itself and adds its member to the `RateLimit` fields; the strictest `Retry-After`
//! wins. What an outer layer has spent stays spent when an inner one denies.
//!
//! The order is trace, CORS, rate limit, the rest: denials are traced and readable by browsers, and
//! cost nothing of what is inside. A limit per user stands inside the authentication, one that
//! protects the authentication outside. In axum the layer added last is the outermost; in a
//! `ServiceBuilder` it is the one added first.
//!
//! Two layers around one route that spend from the same policy and key count each request twice.
//! That is found out by the first requests, and logged once, at `error`, with the code
//! `TOLLGATE-DOUBLE-COUNT`. Forwarding headers that are believed from everywhere are logged at
//! `warn`, as `TOLLGATE-TRUST-ALL`.
//!
//! # Seeing it
//!
//! Denials are logged at `debug`, outages by the limiter at `warn`, both without the key. With the
//! feature `metrics` there are, through the facade of that name:
//!
//! | metric | labels | |
//! |---|---|---|
//! | `tollgate_decisions_total` | `policy`, `outcome` | `allowed`, `denied`, or `shadowed` for a denial in [shadow](RateLimitBuilder::shadow) |
//! | `tollgate_rejections_total` | `reason` | `denied`, `cost_never_fits`, `missing_key`, `unavailable` |
//! | `tollgate_degraded_total` | `reason` | decisions without the store, by [their cause](tollgate::Error::reason): `timeout`, `breaker`, `oom` … |
//! | `tollgate_errors_total` | `reason` | checks without a decision, by the same words: what a [closed](tollgate::Outage::Closed) limit answers 503 to |
//! | `tollgate_check_duration_seconds` | | from the question to the decision, waiting included |
//! | `tollgate_waiting` | | requests that are held for their turn |
//!
//! Install the recorder before the first request. No label comes from a request: what is limited
//! can be named in the first two by [labels](RateLimitBuilder::metric_labels) of a closed list.
//!
//! # Features
//!
//! `axum` (on by default) reads the peer's address and the matched route where axum leaves them,
//! and makes [`Decisions`] an extractor. `tonic` reads the peer's address where tonic leaves it.
//! `metrics` see above.

mod account;
mod answer;
mod builder;
mod decisions;
mod fields;
pub mod future;
pub mod key;
mod labels;
mod layer;
mod metrics;
pub mod rejection;
pub mod retry_after;
mod service;
mod settle;
mod shared;
mod tiers;
mod wait;
mod watch;

pub use account::Account;
pub use builder::RateLimitBuilder;
pub use decisions::Decisions;
pub use fields::{HeaderFormat, Reset};
pub use key::{KeyExtractor, key_fn};
pub use labels::MetricLabels;
pub use layer::RateLimitLayer;
pub use rejection::{Rejection, Respond, respond_fn};
pub use retry_after::RetryAfterLayer;
pub use service::RateLimit;
pub use settle::Outcome;
pub use tiers::{LimiterSource, TieredLimiters};
