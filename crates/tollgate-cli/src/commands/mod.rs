//! The subcommands. Each holds its arguments and does its work.

mod check;
mod explain;
mod pages;

pub(crate) use check::Check;
pub(crate) use explain::Explain;
pub(crate) use pages::{Completions, Man};
