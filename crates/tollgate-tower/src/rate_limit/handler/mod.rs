//! Limits requests inside a handler, with the answers of a layer.

mod admitted;
mod judge;
mod limiter;
mod rejected;

pub use admitted::Admitted;
pub(crate) use judge::Judge;
pub use limiter::HandlerLimiter;
pub use rejected::Rejected;
