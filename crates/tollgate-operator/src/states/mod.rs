//! The states of limits in Redis or PostgreSQL, and what else services keep there: how they are read,
//! removed and changed.
//!
//! An [`Operator`](crate::Operator) does whole tasks. Use these parts to go through all states in your own
//! way, with your own limits, and with a progress: as the command `tollgate` does.
//!
//! Nothing here decides a check. [`ServerAddress`] connects to a [`Server`], [`Limits`] has the quotas that
//! are known, and a [`Scan`] finds states: those of one [`KeyQuery`], or all that are [`Wanted`].

// `scripts/README.md` has the layout of keys, and the headers of `scripts/*.lua` those of values.

mod ahead;
mod connection;
mod entry;
mod exceptions;
mod first;
mod limits;
mod lookup;
mod names;
mod published;
mod reading;
mod regional;
mod scan;
mod server;
mod state_key;
mod table;
mod wanted;

pub use ahead::look_ahead;
pub use entry::StateEntry;
pub use first::{First, Order};
pub use limits::Limits;
pub use lookup::{KeyQuery, denied_ms};
pub use names::Names;
pub use published::{Published, PublishedLimiter, parse_share};
pub use reading::Reading;
pub use regional::{HomeEntry, PurseEntry, Regional};
pub use scan::{Scan, ScanProgress, ScanReport};
pub use server::{Server, ServerAddress};
pub use state_key::{Kind, StateKey};
pub use wanted::Wanted;
