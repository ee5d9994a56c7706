//! The locks of the parts that a model checker runs. The checker brings its own.
//! Locks that it does not exchange are named where they are used.

pub(crate) use std::sync::MutexGuard;

pub(crate) use arc_swap::ArcSwapOption;
pub(crate) use tollgate_core::raw::Lock;
