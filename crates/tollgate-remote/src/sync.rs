//! The atomics of the parts that a model checker runs. The checker brings its own.
//! Locks that it does not exchange are named where they are used.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use arc_swap::ArcSwapOption;
