//! Denials that still hold, remembered in this process.

mod cache;
mod table;

pub(in crate::redis) use cache::{DEFAULT_CAP, DenyCache, Epoch, KeyHash};
