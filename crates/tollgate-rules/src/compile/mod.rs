//! Checks the trees of files and makes a [`RuleSet`](crate::RuleSet) of them.
//!
//! Every mistake is collected. A mistake in one field does not hide those in others.

#[cfg(feature = "http")]
mod actions;
mod compiler;
mod descriptor;
mod errors;
mod fair_shares;
mod fields;
mod files;
mod lease;
mod limit;
mod metadata;
#[cfg(feature = "http")]
mod networks;
mod priorities;

pub(crate) use files::{Source, compile};
#[cfg(feature = "spring")]
pub(crate) use {errors::Errors, fields::listed};
