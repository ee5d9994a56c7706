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
//! Limits on the same key belong in one limiter, where they are decided together, all or nothing.
//! Stack layers for different keys: each adds its member to the `RateLimit` fields.

mod answer;
mod builder;
mod decisions;
mod fields;
pub mod future;
pub mod key;
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

pub use builder::RateLimitBuilder;
pub use decisions::Decisions;
pub use fields::{Dialect, Reset};
pub use key::{KeyExtractor, key_fn};
pub use layer::RateLimitLayer;
pub use rejection::{Rejection, Respond, respond_fn};
pub use retry_after::RetryAfterLayer;
pub use service::RateLimit;
pub use settle::Outcome;
pub use tiers::{Limits, Tiers};
