//! Keys, quotas, policies, algorithms and decisions.
//!
//! Everything here is pure: a state, a time and a cost go in, a decision comes out. Nothing here
//! waits, and nothing knows where states are kept. The [`store`](crate::store) room keeps them in
//! process, other crates do so on servers, and the [`limiter`](crate::limiter) room is what callers
//! use. Whatever waits, locks or sends belongs in one of those.

// A policy has an algorithm, and each step of an algorithm takes its policy; a cost is checked against
// a set, and a set checks a cost. So `algorithm`, `charge`, `cost`, `lease`, `policy`, `policy_set` and
// `priority` know each other: to cut them, each step would take six numbers in the place of a policy.

pub(crate) mod algorithm;
#[cfg(feature = "calendar")]
mod calendar;
pub(crate) mod charge;
mod concurrency;
pub(crate) mod cost;
mod customer;
pub(crate) mod decision;
mod enforcement;
pub(crate) mod entry;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod policy;
pub(crate) mod policy_set;
pub(crate) mod priority;
pub(crate) mod quota;
#[cfg(feature = "serde")]
mod serde;

pub use algorithm::Algorithm;
#[cfg(feature = "calendar")]
pub use calendar::{Anchor, CalendarUnit, TimeZone};
pub use charge::Ceiling;
pub use concurrency::{Concurrency, OnLoss};
pub use cost::{Cost, Costs};
pub use customer::Customer;
pub use decision::{Decision, Denied, KeyState, PolicyState};
pub use enforcement::Enforcement;
pub use entry::Entry;
pub use key::{Key, KeySecret};
pub use lease::Lease;
pub use policy::Policy;
pub use policy_set::{IntoPolicySet, PolicySet};
pub use priority::Priority;
pub use quota::Quota;
