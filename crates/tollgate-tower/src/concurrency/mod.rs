//! Limits requests at the same time, over all replicas.
//!
//! A [`ConcurrencyLayer`] takes a permit of a [`ConcurrencyLimiter`](tollgate::permits::ConcurrencyLimiter) before it
//! calls the service, and gives it back when the body of the response ends, fails or is dropped. So a stream counts
//! for as long as it lives.
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
//! It is a layer of its own, as an [`AdaptiveLayer`](crate::adaptive::AdaptiveLayer) is: a limit of permits needs no rate
//! limit beside it.
//!
//! Place it outside of a [`RateLimitLayer`](crate::RateLimitLayer) or a
//! [`ReservationLayer`](crate::rate_limit::reservation::ReservationLayer). A request without a permit is then charged
//! nothing, and a request that the rate limit denies gives its permit back with its response. The other order charges
//! requests that get no permit.
//!
//! # Status
//!
//! A request without a permit is answered with 429, because its key holds as many as it may. Where all requests share a
//! key, the limit protects the service: [`service_unavailable`](ConcurrencyBuilder::service_unavailable) answers with
//! 503. `Retry-After` is an [estimate](tollgate::permits::PermitDenied::retry_after) in both cases: no clock says when
//! the work of others ends.
//!
//! # Lost permits
//!
//! A permit is lost when the store could not be reached for a whole [life](tollgate::permits::Concurrency::life). With
//! [`OnLoss::Cancel`](tollgate::permits::OnLoss::Cancel) the request ends then: the future of the service is dropped
//! and the client receives 503, or the body ends with an error. With
//! [`OnLoss::Finish`](tollgate::permits::OnLoss::Finish), the default, the request goes on.

mod held;
mod layer;
mod shared;

pub use held::PermitBody;
pub use layer::{ConcurrencyBuilder, ConcurrencyLayer, ConcurrencyLimit};
