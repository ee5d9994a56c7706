//! Limits requests at the same time, over all replicas: for streams, exports and other long work.
//!
//! A [`ConcurrencyLayer`] takes a permit of a
//! [`ConcurrencyLimiter`](tollgate_core::permits::ConcurrencyLimiter) before it calls the service. It
//! gives the permit back when the body of the response ends, fails or is dropped. So a stream
//! counts for as long as it lives.
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{MemoryStore, permits::{Concurrency, ConcurrencyLimiter}};
//! use tollgate_tower::{concurrency::ConcurrencyLayer, key::Header};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limiter = ConcurrencyLimiter::new(MemoryStore::new(), Concurrency::new("streams", 1));
//! let layer = ConcurrencyLayer::new(limiter, Header::new("x-api-key"));
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! let request = || Request::get("/").header("x-api-key", "acme").body(Body::empty()).unwrap();
//!
//! let first = app.clone().oneshot(request()).await.unwrap();
//! assert_eq!(first.headers()["ratelimit-policy"], r#""streams";q=1;qu="concurrent-requests""#);
//! assert_eq!(first.headers()["ratelimit"], r#""streams";r=0"#);
//!
//! let second = app.clone().oneshot(request()).await.unwrap();
//! assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
//!
//! drop(first); // A client reads the body to its end instead.
//! assert_eq!(app.oneshot(request()).await.unwrap().status(), StatusCode::OK);
//! # }
//! ```
//!
//! # Place the layer
//!
//! The layer works with and without a rate limit. To limit the requests of one process by the
//! latency of the service, use the crate `tollgate-overload` instead.
//!
//! Place it outside of a [`RateLimitLayer`](crate::RateLimitLayer) or a
//! [`ReservationLayer`](crate::rate_limit::reservation::ReservationLayer). A request that gets no
//! permit is then not charged, and a request that the rate limit denies gives its permit back with
//! its response. In the other order, requests that get no permit are charged.
//!
//! # Status
//!
//! The response to a request that gets no permit is 429, because too many requests of its key are
//! in flight. If all requests share a key, the limit protects the service: choose 503 with
//! [`service_unavailable`](ConcurrencyBuilder::service_unavailable). In both cases `Retry-After` is
//! an [estimate](tollgate_core::permits::PermitDenied::retry_after), because nobody knows when other
//! requests end.
//!
//! # Lost permits
//!
//! A permit is lost when the store could not be reached for the whole
//! [life](tollgate_core::permits::Concurrency::with_life) of the permit. With
//! [`OnLoss::Finish`](tollgate_core::permits::OnLoss::Finish), the default, the request goes on. With
//! [`OnLoss::Cancel`](tollgate_core::permits::OnLoss::Cancel) it ends: before the response, the future
//! of the service is dropped, and the client receives 503. Later, the body ends with an error.

// Everything about permits for requests is in this folder. Permits without HTTP are in the core.

mod held;
mod layer;
mod shared;

pub use held::PermitBody;
pub use layer::{ConcurrencyBuilder, ConcurrencyLayer, ConcurrencyLimit};
