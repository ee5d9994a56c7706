//! Permits: how many at the same time.
//!
//! Calls run downward: [`limiter`] answers callers and [`queue`] lets them wait, [`turn`] calls the store, [`shared`] keeps
//! the pools of all keys, [`upkeep`] renews them. [`pool`] is pure: with the state in the store room, it is the protocol.

mod acquired;
mod lease;
mod limiter;
#[cfg(test)]
mod model;
mod permit;
mod pool;
mod queue;
mod shared;
#[cfg(test)]
mod tests;
mod turn;
mod upkeep;

pub use acquired::{Acquired, PermitDenied};
pub use limiter::ConcurrencyLimiter;
pub use permit::{Lost, Permit};
