//! The middleware that limits requests.
//!
//! [`builder`] collects the options, and [`source`] the limiters. A request takes the same steps in
//! a [`layer`] and in a [`handler`]:
//!
//! | step | does |
//! |---|---|
//! | select | finds what limits the request: one limiter, several, or none |
//! | charge | computes its cost or its estimate |
//! | check | asks the limiter, and waits |
//! | judge | turns the decision into a verdict |
//! | answer | completes the response of the service, or builds that to a rejected request |
//!
//! The first three are in [`ask`], the others in [`reply`]. [`limits`] has what all requests share,
//! and [`request`] what is known of one between two steps.

// Limits by rate only. Requests at the same time are in `concurrency/`.

mod ask;
mod builder;
mod handler;
mod joint;
mod layer;
mod limits;
mod options;
mod reply;
mod request;
mod request_limiter;
pub mod reservation;
mod source;
mod span;
mod state;

pub use builder::RateLimitBuilder;
pub use handler::{Admitted, HandlerLimiter, Rejected};
pub use joint::{JointCheck, JointDecision, JointFuture};
pub use layer::{RateLimit, RateLimitLayer};
pub use request_limiter::RequestLimiter;
pub use reservation::{MeteredReservation, ReservationLayer};
pub use source::{LimiterSource, TieredLimiters};
pub use state::{StateFuture, StateService};
