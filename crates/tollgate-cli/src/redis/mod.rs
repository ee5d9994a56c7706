//! Reads the states of limits in Redis or PostgreSQL, and resets them.
//!
//! `scripts/README.md` has the layout of keys, and the headers of `scripts/*.lua` those of values.

// The name is that of the first store. Nothing here decides a check: commands only look, and
// remove.

mod ahead;
mod connection;
mod entry;
mod exceptions;
mod first;
mod limits;
mod lookup;
mod names;
mod progress;
mod published;
mod reading;
mod regional;
mod scan;
mod server;
mod state_key;
mod table;
mod wanted;

pub(crate) use ahead::look_ahead;
pub(crate) use entry::{StateEntry, span};
pub(crate) use first::First;
pub use first::Order;
pub(crate) use limits::{LimitOptions, Limits};
pub(crate) use lookup::{KeyOptions, denied_ms, find, find_regional};
pub(crate) use names::{NameOptions, Names};
pub(crate) use published::{Published, PublishedLimiter, parse_share};
pub(crate) use reading::Reading;
pub(crate) use regional::{HomeEntry, PurseEntry, Regional};
pub(crate) use scan::{Scan, ScanCounts, ScanOptions, ScanReport};
pub(crate) use server::{RedisOptions, Server};
pub(crate) use wanted::Wanted;
