//! Denials that still hold, remembered in this process.
//! Whether a check asks here first is decided by each store.

mod cache;
mod table;

pub(crate) use cache::{DEFAULT_CAP, DenyCache, Epoch, KeyHash};
