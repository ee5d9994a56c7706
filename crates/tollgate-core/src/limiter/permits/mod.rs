//! Permits: how many at the same time.
//!
//! Calls run downward: [`limiter`] answers callers and lets them wait, [`call`] calls the store,
//! [`shared`] keeps the pools of all keys, [`upkeep`] renews them. [`pool`] is pure: with the state
//! in the store room, it is the protocol.
//! How a store grants permits is in `store/permits.rs`.

mod call;
mod limiter;
mod permit;
mod pool;
mod shared;
#[cfg(test)]
mod tests;
mod upkeep;

pub use limiter::ConcurrencyLimiter;
pub use permit::{Lost, Permit, PermitDenied};

use crate::store::PermitGrant;
