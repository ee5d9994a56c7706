//! The middleware that limits requests.
//!
//! [`builder`] collects the options. The [`layer`] asks [`shared`] for a decision on the head of a request, and [`admission`]
//! is what is left to do for an admitted one. [`handler`] and [`request_limiter`] are the same limits inside a handler.

mod admission;
mod builder;
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
