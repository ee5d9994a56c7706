//! One limit in several regions: leases of leases.
//!
//! | room | holds |
//! |---|---|
//! | `protocol/` | the rules of home and purse, as pure functions |
//! | `world/` | two regions with their servers, processes and messages, what may happen to them, and what has to hold |
//! | `mistakes.rs` | settings with a wrong line of the rules, and the invariant that finds each |
//! | `rows.rs` | the settings that are explored |
//!
//! The algorithm of the home is abstract: what is used and what is outstanding are at most the quota
//! of a period. What the algorithms of Tollgate do with charges and clocks is no part of it, nor are
//! sets, refunds and debts.

mod mistakes;
pub mod protocol;
mod rows;
mod world;

pub use mistakes::MISTAKES;
pub use rows::ROWS;
pub use world::{At, Budget, Setting, Step, World};
