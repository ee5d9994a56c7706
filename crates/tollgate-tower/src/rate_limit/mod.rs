//! The middleware that limits requests.
//!
//! [`builder`] collects the options. The [`layer`] asks [`shared`] for a decision on the head of a request, and does what is
//! left for an admitted one. [`handler`] has the same limits inside a handler.

mod builder;
mod handler;
mod joint;
mod layer;
mod limiters;
pub mod reservation;
mod shared;
mod state;
mod wait;

pub use builder::RateLimitBuilder;
pub use handler::{Admitted, HandlerLimiter, Rejected, RequestLimiter};
pub use joint::{JointCheck, JointDecision, JointFuture, RequestDecider};
pub use layer::{RateLimit, RateLimitLayer};
pub use limiters::{LimiterSource, TieredLimiters};
pub use reservation::{MeteredReservation, ReservationLayer};
pub use state::{StateFuture, StateService};
pub use wait::check_and_queue;
#[cfg(feature = "outgoing")]
pub(crate) use wait::check_or_wait;
