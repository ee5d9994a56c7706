//! A rate limit service for Envoy, in place of `envoyproxy/ratelimit`.
//!
//! Envoy, Istio and Gloo ask such a service whether a request passes. This one reads the same files, has the same
//! metrics and gives the same answers, and adds every algorithm of Tollgate, exact waits, denied requests that cost
//! nothing, and an answer of your choice while Redis is away. Use `tollgate-tower` or `tollgate-tonic` for limits inside of a
//! Rust service.
//!
//! [`RateLimitService`] is the gRPC service, to be mounted in a server of your own. The program `tollgate-envoy` is a whole
//! server: `docs/envoy.md` says how to run it. With the feature `server`, its parts can be used alone: [`Server`],
//! [`Health`], [`Ads`], [`Statsd`], and the routers of [`http`] and [`debug`].
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `server` | yes | the program, and all parts of its server |

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
pub use ads::{Ads, AdsBuilder, AdsTls, Backoff};
#[cfg(feature = "server")]
pub use health::{Component, Health};
pub use metrics::Metrics;
#[cfg(feature = "server")]
pub use metrics::{Statsd, StatsdProtocol, prometheus_text};
#[cfg(feature = "server")]
pub use server::{GrpcListen, Server, ServerBuilder, ServerError, TlsFiles};
pub use service::{LimitHeaderNames, RateLimitService, RateLimitServiceBuilder};

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
