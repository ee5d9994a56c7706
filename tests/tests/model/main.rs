//! Tries the structures that many threads share in every order of two or three threads.
//!
//! The files are those of the library, with the atomics and locks of loom.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the library uses what is left over here"
)]

/// The background tasks, with a runtime.
#[path = "."]
mod runtime {
    mod sync {
        pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
    }

    #[path = "../../../crates/tollgate-core/src/runtime/background.rs"]
    mod background;
    pub(crate) use background::Background;
    use tokio::runtime::{Handle, TryCurrentError};

    fn current() -> Result<Handle, TryCurrentError> {
        Handle::try_current()
    }
}

/// The locks and atomics of the files below.
mod sync {
    pub(crate) use loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    };

    pub(crate) use crate::lock::Lock;

    /// Stands for the type of a crate that loom does not know.
    pub(crate) struct ArcSwapOption<T>(Mutex<Option<std::sync::Arc<T>>>);

    impl<T> ArcSwapOption<T> {
        pub(crate) fn empty() -> Self {
            Self(Mutex::new(None))
        }

        pub(crate) fn load(&self) -> Option<std::sync::Arc<T>> {
            self.0.lock().expect("a lock").clone()
        }

        pub(crate) fn store(&self, one: Option<std::sync::Arc<T>>) {
            *self.0.lock().expect("a lock") = one;
        }
    }
}

#[path = "../../../crates/tollgate-remote/src/health/breaker.rs"]
pub(crate) mod breaker;
#[path = "../../../crates/tollgate-redis/src/connect/dial_state.rs"]
pub(crate) mod dial_state;
#[path = "../../../crates/tollgate-remote/src/deny_cache/table.rs"]
pub(crate) mod epoch_table;
mod laws;
#[path = "../../../crates/tollgate-redis/src/dispatch/pacer/mod.rs"]
pub(crate) mod pacer;
#[path = "../../../crates/tollgate-redis/src/dispatch/queue.rs"]
pub(crate) mod queue;
#[path = "../../../crates/tollgate-core/src/store/memory/shards.rs"]
mod shards;

/// The room of the library that `queue` names.
pub(crate) mod server {
    pub(crate) use crate::breaker::Breaker;
}

/// The lock of the library, over that of loom.
mod lock {
    use loom::sync::{Mutex, MutexGuard};

    #[derive(Debug)]
    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no panic under the lock")
        }
    }
}
