//! The middleware that limits requests.
//!
//! A request passes the files from the top down: [`layer`] and [`builder`] make the service, [`service`] asks [`shared`]
//! for a decision on the head of the request, [`future`] waits for it and turns it into a response. [`handler`] and
//! [`request_limiter`] are the same limits inside a handler.

mod builder;
pub mod future;
mod handler;
mod joint;
mod layer;
mod limit;
mod limiters;
mod request_limiter;
pub mod reservation;
mod shared;
mod wait;

pub use builder::RateLimitBuilder;
pub use handler::{Admitted, HandlerLimiter, Rejected};
pub use joint::{JointDecision, JointFuture, RequestDecider};
pub use layer::{RateLimit, RateLimitLayer};
pub use limiters::{LimiterSource, TieredLimiters};
pub use request_limiter::RequestLimiter;
pub use reservation::{MeteredReservation, ReservationLayer};
