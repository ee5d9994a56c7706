//! The locks and atomics of the parts that a model checker runs. The checker brings its own.
//! The in-process store has a file of its own, `store/memory/sync.rs`, because it is checked apart.

pub(crate) use std::sync::{
    MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

pub(crate) use arc_swap::ArcSwapOption;

pub(crate) use crate::lock::Lock;
