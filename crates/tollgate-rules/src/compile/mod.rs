//! Checks the trees of files and makes a [`RuleSet`](crate::RuleSet) of them.
//!
//! Every mistake is collected. A mistake in one field does not hide those in others.
//! Texts were parsed before, in `document/`. What the finished rules do with a request is in
//! `matching/` and `verdict/`.

#[cfg(feature = "http")]
mod actions;
mod builder;
mod compiler;
mod descriptor;
mod digest;
mod errors;
mod fair_shares;
mod fields;
mod files;
mod lease;
mod limit;
mod loading;
mod metadata;
#[cfg(feature = "http")]
mod networks;
mod priorities;

pub use builder::RuleSetBuilder;
#[cfg(feature = "spring")]
pub(crate) use {errors::Errors, fields::listed};
