//! The locks of [`shards`](super::shards). The model checker compiles `shards.rs` with its own
//! locks instead.
//! Other parts of the store take theirs from `store/sync.rs`.

pub(super) use std::sync::MutexGuard;

pub(super) use crate::lock::Lock;
