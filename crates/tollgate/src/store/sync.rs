//! The locks and atomics of the parts that a model checker runs. The checker brings its own.

pub(crate) use std::sync::{
    MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

pub(crate) use arc_swap::ArcSwapOption;

pub(crate) use crate::lock::Lock;
