//! The mutex of this crate: one that a panic does not poison.
//! The locks that a model checker exchanges are named in the `sync.rs` files, which lead here
//! otherwise.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock that a panic does not poison: no panic can leave what it guards half changed.
#[derive(Debug, Default)]
pub struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    /// Creates a lock around a value.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
