//! Limits requests in flight by the latency of the service, as Tower middleware: for a service that
//! may become slow.
//!
//! A rate limit says how much a client may ask for. It does not know what the service can do now:
//! when a database is slow for ten seconds, requests pile up until clients give up or the memory is
//! full. An [`AdaptiveLimiter`] bounds the requests in flight in this process. Its limit follows
//! the latency: it rises while the service is fast, and falls when requests begin to wait. Requests
//! above the limit are *shed*: the layer rejects them at once, the [least important](Class) ones
//! first.
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::Request;
//! use tollgate_overload::{AdaptiveLayer, AdaptiveLimiter, Gradient, Class};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limiter = AdaptiveLimiter::builder(Gradient::new()).limits(20..=500).build();
//! let layer = AdaptiveLayer::builder(limiter.clone())
//!     .class(|parts| if parts.uri.path() == "/login" { Class::CRITICAL } else { Class::NORMAL })
//!     .build();
//! let app: Router = Router::new().route("/login", get(|| async { "hello" })).layer(layer);
//!
//! let response = app.oneshot(Request::get("/login").body(Body::empty()).unwrap()).await.unwrap();
//! assert_eq!(response.status(), 200);
//! assert_eq!(limiter.in_flight(), 1); // Until the body was read or dropped.
//! # }
//! ```
//!
//! # Choose an algorithm
//!
//! | algorithm | limit | use it for |
//! |---|---|---|
//! | [`Gradient`] | falls when the latency exceeds 1.5 times the latency without a queue | most services |
//! | [`Vegas`] | keeps the number of waiting requests between two bounds | requests that all take about the same time |
//! | [`Aimd`] | falls when the latency exceeds a threshold of yours | services with a target for their latency |
//!
//! All of them also lower the limit when more than 5 % of the requests in a
//! [window](AdaptiveLimiterBuilder::window) give the signal [`Overload`](Signal::Overload).
//!
//! # Place the layer
//!
//! Either order works:
//!
//! - Outside of a [`RateLimitLayer`](tollgate_tower::RateLimitLayer), a request that is shed is not charged.
//!   A client that exceeds its quota takes a slot for the short time of its check. The fast 429 of
//!   the rate limit does not count as a latency.
//! - Inside of it, requests above the quota take no slot. Shed requests are charged, unless
//!   [`charge_on`](tollgate_tower::RateLimitBuilder::charge_on) refunds the status 503.
//!
//! # No queue
//!
//! A request above the limit does not wait for a slot. The service already has a queue: the limit
//! allows some more requests than the service can work on. A second queue would hold connections
//! and bodies in memory, hide the overload from clients, and delay requests until their clients
//! have given up. `Retry-After` moves the wait to the client.

//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `metrics` | no | the metrics below, through the `metrics` facade, and those of `tollgate-tower` for what is shed |
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `tollgate_adaptive_limit` | `limiter` | the limit of an adaptive limiter |
//! | `tollgate_adaptive_in_flight` | `limiter` | greatest number of requests in flight in its last window |
//! | `tollgate_adaptive_latency_seconds` | `limiter` | mean latency of its last window |

// Everything about limits by latency is in this crate. Limits by key and store are in
// `concurrency/` of tollgate-tower, and so is the gate on which the layer stands.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
mod baseline;
mod builder;
mod class;
mod estimator;
mod layer;
mod limiter;
mod metrics;
mod request;
mod signal;
mod slot;
mod window;

pub use algorithm::{Aimd, Gradient, LimitAlgorithm, Vegas};
pub use builder::AdaptiveBuilder;
pub use class::Class;
pub use layer::{AdaptiveLayer, AdaptiveLimit};
pub use limiter::{AdaptiveLimiter, AdaptiveLimiterBuilder};
pub use request::{AdaptiveBody, Latency};
pub use signal::Signal;
pub use slot::Slot;
pub use tollgate_tower::rejection::Overload;
pub use window::SampleWindow;

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
