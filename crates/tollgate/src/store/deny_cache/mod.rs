//! Denials that still hold, remembered in this process.

mod cache;
mod table;

pub(crate) use cache::{DEFAULT_CAP, DenyCache, Epoch, KeyHash};
