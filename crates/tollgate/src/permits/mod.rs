//! Permits: how many at the same time.
//!
//! Calls run downward: [`limiter`] answers callers and [`queue`] lets them wait, [`turn`] calls the store, [`shared`] keeps
//! the pools of all keys, [`upkeep`] renews them. [`pool`] and [`state`] are pure: they are the two sides of the protocol.

mod acquired;
mod lease;
mod limiter;
#[cfg(test)]
mod model;
mod permit;
mod policy;
mod pool;
mod queue;
mod request;
mod shared;
mod state;
#[cfg(test)]
mod tests;
mod turn;
mod upkeep;

pub use acquired::{Acquired, PermitDenied};
pub use limiter::ConcurrencyLimiter;
pub use permit::{Lost, Permit};
pub use policy::{Concurrency, OnLoss};
pub use request::{PermitGrant, PermitOutcome, PermitRequest};
pub(crate) use state::PermitState;
