//! Denials that still hold, remembered in this process.
//! Whether a check asks here first is decided by each store; the slots without locks are in
//! `table.rs`.

mod cache;
mod table;

pub use cache::{DEFAULT_CAP, DenyCache, Epoch, KeyHash};
