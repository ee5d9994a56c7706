//! The locks of [`shards`](super::shards). The model checker compiles `shards.rs` with its own
//! locks instead.

pub(super) use std::sync::MutexGuard;

pub(super) use crate::lock::Lock;
