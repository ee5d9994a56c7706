//! Keeps the calls of all replicas below the limit of another service, as Tower middleware for
//! clients.
//!
//! Start with the [guide]: reqwest and hyper, one limit for each account, limits that count arrivals.
//! Where the limit of the service is unknown, use a [`RetryAfterLayer`].
//!
//! An [`OutgoingLayer`] goes around a client of somebody else's API. It combines:
//!
//! 1. **The known limit.** A call waits for its turn in the limiter, which all replicas share over
//!    the store.
//! 2. **What the service says.** A response with `Retry-After`, or with rate limit headers without
//!    remaining units, pauses the calls of all replicas.
//!    [`RetryAfterLayer`] lists the headers.
//! 3. **Retries.** [`OutgoingBuilder::retries`] repeats the calls that the service refused, within
//!    a budget. A call whose body cannot be sent again is never repeated.
//! 4. **The longest wait.** No attempt begins later than [`OutgoingBuilder::wait`] after the call.
//!    A call whose turn would come later is not made: the caller gets a 429 of the layer at once.
//!
//! ```
//! use http::{Request, Response};
//! use std::time::Duration;
//! use tollgate::{Limiter, MemoryStore, Policy, Quota, store::Clock};
//! use tollgate_outgoing::OutgoingLayer;
//! use tollgate_tower::key::Global;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! # let start = tokio::time::Instant::now();
//! // Refuses calls for seven seconds.
//! let api = service_fn(move |_: Request<String>| async move {
//!     let is_open = start.elapsed() >= Duration::from_secs(7);
//!     let response = Response::builder().status(if is_open { 200 } else { 429 }).header("retry-after", "7");
//!     Ok::<_, std::convert::Infallible>(response.body(String::new()).unwrap())
//! });
//! // In production: `tollgate::open("redis://…")`, so that all replicas share the limit and the pauses.
//! let store = MemoryStore::builder().clock(Clock::tokio()).build();
//! let limiter = Limiter::new(store, Policy::leaky_bucket("geocoder", Quota::per_second(10).with_burst(1_000)));
//! let api = OutgoingLayer::builder(limiter, Global)
//!     .wait(Duration::from_secs(30))
//!     .retries(2, |body: &String| Some(body.clone()))
//!     .build()
//!     .layer(api);
//!
//! // The first attempt is refused, and pauses all calls. The second one is made when the pause is over.
//! assert_eq!(api.oneshot(Request::new(String::new())).await.unwrap().status(), 200);
//! assert_eq!(start.elapsed().as_secs(), 7);
//! # }
//! ```
//!
//! # Pauses
//!
//! A pause belongs to the key of a call. The store of the limiter keeps it under this key and the
//! name `NAME/pause`, where `NAME` is the first policy of the limiter. A pause ends by itself.
//! [`Limiter::reset`](tollgate_core::Limiter::reset) and `tollgate reset` end it earlier. A shorter
//! pause does not end a longer one. In an outage of the store, each replica obeys only the
//! responses that it received itself.
//!
//! When its turn comes, a call looks in the store whether calls are paused. This takes one round
//! trip. In a pause the call waits, and then takes another turn. So the calls that waited leave
//! with the spacing of the limit, and not all at once.
//!
//! Rate limit headers cause a pause only when no units remain. Any other number of remaining units
//! is ignored: nobody knows which of the calls that are under way it includes, and the limiter
//! counts all of them.
//!
//! The service has not received a call that another `OutgoingLayer` inside this one rejects. So such
//! a rejection causes no pause, and the call is not repeated.
//!
//! When the service begins to refuse calls, it also refuses those that are under way. There is no
//! shadow mode, because a call that does not wait for its turn would exceed the limit of the other
//! service.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `reqwest` | no | `ReqwestClient` makes a Tower service of a `reqwest::Client` |
//! | `metrics` | no | the metrics below, through the `metrics` facade, and those of `tollgate-tower` for decisions and rejections |
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `tollgate_outgoing_pauses_total` | `limiter` | responses of another service that paused outgoing calls |
//! | `tollgate_outgoing_retries_total` | `limiter`, `outcome` | outgoing calls that another service refused and that may be sent again: `repeated`, `late` (the pause ends after the longest wait), `no_budget`, or `spent` (repeated as often as allowed) |

// Calls to a service whose limit is not known are in `retry_after/`. Header fields are parsed in
// tollgate-tower, which also has the gate on which the layers stand.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;
mod layer;
mod metrics;
mod pauses;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retry;
pub mod retry_after;
mod service;

#[cfg(feature = "reqwest")]
pub use self::reqwest::ReqwestClient;
pub use layer::{OutgoingBuilder, OutgoingLayer};
pub use retry::{CopyBody, NoRetries};
pub use retry_after::RetryAfterLayer;
pub use service::Outgoing;

/// Compiles the examples of the README with the tests.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../README.md")]
struct Readme;
