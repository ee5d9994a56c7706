//! Tests that look at the whole process, its panic hook and its scripts, and so run one after the
//! other.

mod panics;
mod shapes;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps the other tests of this program waiting until the guard is dropped.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
