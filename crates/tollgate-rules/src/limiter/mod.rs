//! Checks requests against rules on a store.
//! Which rules a request has, and what their outcomes mean for it, is computed in `verdict/`,
//! without a store.

mod builder;
mod decision;
mod exceeded;
mod give_back;
mod grow;
#[cfg(feature = "http")]
mod request_rules;
mod reserve;
mod rule_limiter;
mod settle;
mod steps;

pub use builder::RuleLimiterBuilder;
pub use decision::{CheckError, RuleDecision};
#[cfg(feature = "http")]
pub use request_rules::RequestRules;
pub use rule_limiter::RuleLimiter;
