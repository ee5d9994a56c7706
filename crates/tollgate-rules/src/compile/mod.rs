//! Checks the trees of files and makes a [`RuleSet`](crate::RuleSet) of them.
//!
//! Every mistake is collected. A mistake in one field does not hide those in others.

mod compiler;
mod descriptor;
mod errors;
mod fields;
mod files;
mod lease;
mod limit;
mod metadata;
mod names;

#[cfg(feature = "http")]
pub(crate) use compiler::Compiler;
pub(crate) use errors::Errors;
#[cfg(feature = "http")]
pub(crate) use errors::Trail;
pub(crate) use fields::listed;
pub(crate) use files::{Options, compile};
pub(crate) use names::{metric_part, policy_name, stat_name};
