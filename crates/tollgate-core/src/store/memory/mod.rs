//! The in-process store.
//!
//! Calls run downward: [`store`] receives them, [`shards`] locks, [`state_table`] holds the states.
//! [`tables`] gives the states of one key to the [`step`](super::step) that decides over several
//! policies.
//! No other store uses these tables: what stores have in common is one floor up.

mod exceptions;
#[cfg(feature = "testing")]
pub(crate) mod lockless;
mod permit_table;
mod shards;
mod state_table;
mod store;
mod sync;
mod tables;
#[cfg(test)]
mod tests;

pub use store::{MemoryStore, MemoryStoreBuilder};
