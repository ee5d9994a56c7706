//! Requests whose cost is known when their response body ends.
//!
//! A [`ReservationLayer`] charges an estimate before it calls the service, and settles the real
//! cost when the body of the response ends, fails or is dropped.
//! [`RateLimitBuilder::reserve`](crate::RateLimitBuilder::reserve) builds it. The service counts
//! the cost with the [`Meter`](crate::Meter) in the extensions of the request. When the estimate is
//! in the body of the request, the handler calls
//! [`HandlerLimiter::reserve`](crate::HandlerLimiter::reserve).
//!
//! | end of the request | cost |
//! |---|---|
//! | the body ends, fails, or the client disconnects | what the meter has counted |
//! | the body ends, fails, or the client disconnects, and nothing was counted | the estimate |
//! | the service fails, panics or is cancelled before the response | as in the two rows above |
//! | the process dies, or the time to live has ended | the estimate |
//!
//! If a service fails before it spends anything, let it set its meter to 0: nothing is charged
//! then. Each policy has a count of its own. A policy without a count keeps its part of the
//! estimate. If the estimate [cascades](tollgate_core::Costs::cascading), set the count for all policies
//! to the sum. The meter of an [exempt](crate::RateLimitBuilder::exempt) request counts nothing.
//!
//! A reservation that [grows](ReservationBuilder::growing) is charged slice by slice while the meter
//! counts. It settles at the estimate and what was counted, also when nothing was, and never leaves a
//! debt.
//!
//! Units that are counted after the end are not charged. For work that goes on after the client has
//! left, reserve with a [`HandlerLimiter`](crate::HandlerLimiter), and keep the
//! [`MeteredReservation`] in the task.

// Charges that are only refunded after the response need no reservation: those are in `charge.rs`.

mod handler;
mod held;
mod layer;
mod metered;
mod options;

pub use handler::HandlerReserve;
pub(crate) use held::HeldReservation;
pub use layer::{ReservationBuilder, ReservationLayer, Reserve};
pub use metered::MeteredReservation;
pub(crate) use options::{EstimateOf, ReserveOptions};
