//! What many threads share, in every order that two or three of them can take.
//!
//! The files are those of the library, on the atomics and locks of loom.

#![allow(dead_code, unreachable_pub, reason = "the library uses what is left over here")]

mod sync {
    pub(super) use loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    };

    /// What the library takes from a crate.
    pub(super) struct ArcSwapOption<T>(Mutex<Option<std::sync::Arc<T>>>);

    impl<T> ArcSwapOption<T> {
        pub(super) fn empty() -> Self {
            Self(Mutex::new(None))
        }

        pub(super) fn load(&self) -> Option<std::sync::Arc<T>> {
            self.0.lock().expect("a lock").clone()
        }

        pub(super) fn store(&self, one: Option<std::sync::Arc<T>>) {
            *self.0.lock().expect("a lock") = one;
        }
    }
}

#[path = "../../../crates/tollgate/src/redis/breaker.rs"]
mod breaker;
#[path = "../../../crates/tollgate/src/redis/generation.rs"]
mod generation;
#[path = "../../../crates/tollgate/src/redis/queue.rs"]
mod queue;
#[path = "../../../crates/tollgate/src/redis/slots.rs"]
mod slots;

#[path = "../../../crates/tollgate/src/memory/shards.rs"]
mod shards;

mod laws;
