//! The atomics of the part that a model checker runs. The checker brings its own.

pub(super) use std::sync::atomic::{AtomicU32, Ordering};
