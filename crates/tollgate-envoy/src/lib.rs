//! A rate limit service for Envoy, in place of `envoyproxy/ratelimit`.
//!
//! Envoy, Istio and Gloo ask such a service whether a request passes. This service reads the same
//! files, has the same metrics and gives the same answers. It adds every algorithm of Tollgate,
//! exact waits, denied requests that cost nothing, and an answer of your choice while Redis is
//! away. For limits inside a Rust service, use `tollgate-tower` or `tollgate-tonic`.
//!
//! The program `tollgate-envoy` is a whole server: `docs/envoy.md` says how to run it.
//! [`RateLimitService`] is the gRPC service alone, for a server of your own, with an example. With
//! the feature `server`, you can also use the other parts alone: [`Server`], [`Health`], [`Ads`],
//! [`Statsd`], and the routers of [`http`] and [`debug`].
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `server` | yes | the program, and all parts of its server |

// Nothing but re-exports stands here. Settings and files of the program are in `command/`, which
// belongs to `main.rs`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "server")]
mod ads;
#[cfg(feature = "server")]
pub mod debug;
#[cfg(feature = "server")]
mod health;
#[cfg(feature = "server")]
pub mod http;
#[cfg(feature = "server")]
mod json;
mod metrics;
pub mod proto;
#[cfg(feature = "server")]
mod server;
mod service;

#[cfg(feature = "server")]
pub use ads::{Ads, AdsTls, Backoff};
#[cfg(feature = "server")]
pub use health::{Component, Health};
pub use metrics::Metrics;
#[cfg(feature = "server")]
pub use metrics::{Statsd, StatsdProtocol, prometheus_text};
#[cfg(feature = "server")]
pub use server::{GrpcListen, Server, ServerBuilder, ServerError, TlsFiles};
pub use service::{LimitHeaderNames, NearLimit, RateLimitService, RateLimitServiceBuilder};

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
