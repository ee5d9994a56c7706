//! Responses that end where their reservation ends: streams and bodies that pass an item on when its
//! units are reserved.
//!
//! The cost of a stream is not known when it begins. A reservation that
//! [grows](tollgate_tower::reservation::ReservationBuilder::growing) is charged slice by slice while the stream
//! runs, so nothing is overspent, and a slice may be denied in the middle of a response. What then
//! happens is the choice of the application:
//!
//! | choice | how |
//! |---|---|
//! | the response ends with an item that says why | [`MeteredStream::end_with`], [`MeteredBody::end_with`] |
//! | it pauses until the quota returns, for a bounded time | [`MeteredStream::wait`], [`MeteredBody::wait`] |
//! | it goes on at the cost of another reservation | [`MeteredStream::or`], [`MeteredBody::or`] |
//! | it goes on at the cost of the next policy, such as credits after a plan | slices that [cascade](tollgate_core::Costs::cascading) |
//!
//! An item passes whole or not at all: it is counted before it leaves. Use [`MeteredStream`] where
//! the handler has a stream of items, and [`MeteredBody`] where it has a body, such as the response
//! of another server. For messages of gRPC, `tollgate_tonic::messages::metered` ends the stream with
//! a status.
//!
//! The reservation has to live as long as the response. In a layer that reserves, it does. A handler
//! that [reserves](tollgate_tower::HandlerLimiter::reserve) gives it to
//! [`guard_response`](tollgate_tower::body::guard_response).
//!
//! ```
//! use axum::{
//!     Router,
//!     body::{Body, to_bytes},
//!     http::Request,
//!     response::{IntoResponse, Response, Sse, sse::Event},
//!     routing::get,
//! };
//! use futures_util::{StreamExt, stream};
//! use std::convert::Infallible;
//! use tollgate::{Limiter, Policy, Quota};
//! use tollgate_metered::MeteredStream;
//! use tollgate_tower::{Meter, RateLimitLayer, key::Global};
//! use tower::ServiceExt;
//!
//! async fn chat(meter: Meter) -> Response {
//!     let words = stream::iter(["to", "be", "or", "not", "to", "be"]);
//!     // Each word costs a token. The stream ends with an event of its own where the limit ends.
//!     let words = MeteredStream::new(words, &meter, |_word| 1).end_with(|_denied| Some("[limit]"));
//!     let events = words.map(|word| Ok::<_, Infallible>(Event::default().data(word)));
//!     Sse::new(events).into_response()
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let tokens = Limiter::in_memory(Policy::fixed_window("tokens", Quota::per_day(4)));
//! let layer = RateLimitLayer::builder(tokens, Global)
//!     .reserve(|_request| 0)
//!     .growing(2)
//!     .build();
//! let app: Router = Router::new().route("/", get(chat)).layer(layer);
//! let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
//! let body = to_bytes(response.into_body(), 1_000).await.unwrap();
//! assert_eq!(body, "data: to\n\ndata: be\n\ndata: or\n\ndata: not\n\ndata: [limit]\n\n");
//! # }
//! ```

// How a reservation grows is in the core, and how a layer makes one in `rate_limit/reservation/` of
// tollgate-tower.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod events;
mod gate;
mod stream;

pub use body::{MeteredBody, meter_response};
pub use stream::MeteredStream;

/// Compiles the examples of the README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
