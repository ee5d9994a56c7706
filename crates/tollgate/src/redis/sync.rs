//! The locks and atomics of the parts that a model checker runs. The checker brings its own.

pub(in crate::redis) use std::sync::{
    MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

pub(in crate::redis) use arc_swap::ArcSwapOption;

pub(in crate::redis) use crate::lock::Lock;
