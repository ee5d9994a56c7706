//! Responses to rejected requests: for a body or a status of your own.
//!
//! | reason | status | `Retry-After` |
//! |---|---|---|
//! | [denied](Reason::Denied) | 429 | whole seconds, rounded up, at least 1 |
//! | [blocked](Reason::Blocked) | 429 | none, because waiting does not help |
//! | [forbidden](Reason::Forbidden) | 403 | none, because waiting does not help |
//! | [cost never fits](Reason::CostNeverFits) | 413 | none, because waiting does not help |
//! | [missing key](Reason::MissingKey) | 400, or 404 when the key is the route and no route matches | none |
//! | [misconfigured](Reason::Misconfigured) | 500 | none |
//! | [unavailable](Reason::Unavailable) | 503 | none |
//! | [no permit](Reason::NoPermit) | 429 | whole seconds, rounded up, at least 1; an estimate |
//! | [overloaded](Reason::Overloaded) | 503 | whole seconds, rounded up, at least 1; an estimate |
//!
//! A [responder](Respond) builds the response. The default is [`Problem`]. [`Empty`] has no body,
//! and [`respond_fn`] wraps a closure. The middleware then adds the headers that the responder has
//! not set: `Retry-After`, the rate limit headers, and `Cache-Control: no-store` on a 429.
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::{Limiter, MemoryStore, Policy, Quota};
//! use tollgate_tower::{RateLimitLayer, key::Global, respond_fn};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("daily", Quota::per_day(1)));
//! let layer = RateLimitLayer::builder(limiter, Global)
//!     .respond_with(respond_fn(|rejection| {
//!         let mut response = Response::new(format!("rejected: {}", rejection.reason().as_str()));
//!         *response.status_mut() = rejection.status();
//!         response
//!     }))
//!     .build();
//! let service = layer
//!     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
//!
//! let _ = service.clone().oneshot(Request::new(())).await;
//! let denied = service.oneshot(Request::new(())).await.unwrap();
//! assert_eq!(denied.status(), 429);
//! assert!(denied.headers().contains_key("retry-after"));
//! assert_eq!(denied.into_body(), "rejected: denied");
//! # }
//! ```

mod problem;
mod reason;
mod respond;

pub use problem::Problem;
pub use reason::{Overload, Reason, Rejection};
pub(crate) use respond::add_headers;
pub use respond::{Empty, Respond, RespondFn, respond_fn};
