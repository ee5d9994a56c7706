//! The options that several subcommands have, and what tollgate-operator needs of each.
//! The options of one command stand with it, in `commands/`, and those of rules in `rules.rs`.

mod key;
mod limits;
mod names;
mod progress;
mod scan;
mod server;

pub(crate) use key::KeyOptions;
pub(crate) use limits::{LimitOptions, connect, require};
pub(crate) use names::NameOptions;
pub(crate) use scan::ScanOptions;
pub(crate) use server::RedisOptions;
