//! The atomics of the part that a model checker runs. The checker brings its own.
//! Only `background.rs` uses them.

pub(super) use std::sync::atomic::{AtomicU32, Ordering};
