//! The in-process store.
//!
//! Calls run downward: [`store`] decides, [`shards`] locks, [`state_table`] holds the states.

#[cfg(feature = "testing")]
pub(crate) mod lockless;
mod permit_table;
mod shards;
mod state_table;
mod store;
mod stored_key;
mod sync;

pub use store::{MemoryStore, MemoryStoreBuilder};
