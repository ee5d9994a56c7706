//! Decides what becomes of a request with several descriptors. Nothing here touches a store.
//!
//! [`RuleSet::plan`](crate::RuleSet::plan) selects the descriptors that are charged. The caller
//! charges them, and [`Plan::verdict`] combines the outcomes into the answer.
//! The store is asked in `limiter/`.

mod combine;
mod outcome;
mod plan;

pub use combine::{Code, CurrentLimit, GlobalModes, Status, Verdict};
pub use outcome::DescriptorOutcome;
pub use plan::{Plan, Planned, RequestError, Treatment};
