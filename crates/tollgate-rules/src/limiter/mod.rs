//! Checks requests against rules on a store.

mod builder;
mod charge;
mod decision;
mod rule_limiter;

pub use builder::RuleLimiterBuilder;
pub use decision::{CheckError, RuleDecision};
pub use rule_limiter::RuleLimiter;
