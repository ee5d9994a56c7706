//! The in-process store.
//!
//! Calls run downward: [`store`] receives them, [`shards`] locks, [`state_table`] holds the states. [`decision`]
//! decides over several policies.

mod decision;
#[cfg(feature = "testing")]
pub(crate) mod lockless;
mod permit_table;
mod shards;
mod state_table;
mod store;
mod sync;

pub use store::{MemoryStore, MemoryStoreBuilder};
