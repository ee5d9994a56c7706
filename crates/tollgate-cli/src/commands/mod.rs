//! The subcommands. Each holds its arguments and does its work.
//! One floor up is what several commands need: `event_log/`, `options/`, `rollout/`, `simulate/`, `trace/`, `watch/`.
//! All work on a running system is that of tollgate-operator.

mod check;
mod enforce;
mod except;
mod explain;
mod import;
mod pages;
mod peek;
mod reset;
mod rollout;
mod simulate;
mod states;
mod status;
mod top;
mod who;
mod why;

pub(crate) use check::Check;
pub(crate) use enforce::Enforce;
pub(crate) use except::Except;
pub(crate) use explain::Explain;
pub(crate) use import::Import;
pub(crate) use pages::{Completions, Man};
pub(crate) use peek::Peek;
pub(crate) use reset::Reset;
pub(crate) use rollout::Rollout;
pub(crate) use simulate::Simulate;
pub(crate) use status::Status;
pub(crate) use top::Top;
pub(crate) use who::Who;
pub(crate) use why::Why;
