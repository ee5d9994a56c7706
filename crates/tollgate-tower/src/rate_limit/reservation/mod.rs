//! Requests whose cost is known when their response body ends.
//!
//! A [`ReservationLayer`] charges an estimate before it calls the service, and settles the real cost when the body of the
//! response ends, fails or is dropped. [`RateLimitBuilder::reserve`](crate::RateLimitBuilder::reserve) builds it. The
//! service counts with the [`Meter`](crate::Meter) in the extensions of the request. A handler whose estimate is in the
//! body of the request uses [`HandlerLimiter::reserve`](crate::HandlerLimiter::reserve).
//!
//! | end of the request | cost |
//! |---|---|
//! | the body ends, fails, or the client disconnects | what the meter has counted |
//! | nothing was counted | the estimate |
//! | the service fails, panics or is cancelled before the response | the same two rows |
//! | the process dies, or the time to live has ended | the estimate |
//!
//! A service that fails before it spends anything sets its meter to 0, and nothing is charged. Each policy counts on its
//! own: one that has no count keeps its part of the estimate.
//!
//! Units that are counted after the end are not charged. A task that goes on without its client keeps the
//! [`MeteredReservation`] of a [`HandlerLimiter`](crate::HandlerLimiter) itself.

mod handler;
mod layer;
mod metered;
mod options;

pub use handler::HandlerReserve;
pub use layer::{ReservationLayer, Reserve};
pub use metered::MeteredReservation;
pub use options::ReservationBuilder;
pub(crate) use options::{EstimateOf, ReserveOptions};
