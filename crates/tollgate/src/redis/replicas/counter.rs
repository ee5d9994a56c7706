use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

#[cfg(feature = "metrics")]
use std::{sync::atomic::AtomicU64, time::Duration};

use tokio::sync::Notify;

#[cfg(feature = "metrics")]
use crate::clock::micros;
use crate::{
    outage::{ReplicaCount, WeakReplicaCount},
    redis::backend::Backend,
};

/// Holds the number of processes that a store counted last, and knows whether a task counts.
pub(in crate::redis) struct ReplicaCounter {
    /// Tells whether the number is wanted and no task counts. Read with each check.
    needs_task: AtomicBool,
    state: Mutex<State>,
    /// Wakes the task when the store is dropped.
    pub(super) dropped: Arc<Notify>,
    /// The time of the last call in microseconds, 0 before the first one.
    #[cfg(feature = "metrics")]
    round_trip_us: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Alive as long as a limiter wants the number.
    count: WeakReplicaCount,
    has_task: bool,
}

/// Has servers, and counts the processes that use them.
pub(in crate::redis) trait Counts: Send + Sync + 'static {
    fn backend(&self) -> &Backend;
    fn counter(&self) -> &ReplicaCounter;
}

impl ReplicaCounter {
    pub(in crate::redis) fn new() -> Self {
        Self {
            needs_task: AtomicBool::new(false),
            state: Mutex::default(),
            dropped: Arc::default(),
            #[cfg(feature = "metrics")]
            round_trip_us: AtomicU64::new(0),
        }
    }

    /// Returns whether a task has to be started.
    #[inline]
    pub(in crate::redis) fn needs_task(&self) -> bool {
        self.needs_task.load(Ordering::Relaxed)
    }

    /// Returns the number, which is wanted from now on.
    pub(in crate::redis) fn count(&self) -> ReplicaCount {
        let mut state = self.lock();
        let count = state.count.upgrade().unwrap_or_else(|| {
            let count = ReplicaCount::new();
            state.count = count.downgrade();
            count
        });
        self.needs_task.store(!state.has_task, Ordering::Relaxed);
        count
    }

    /// Returns whether the caller has to start the task that counts.
    pub(super) fn begin_task(&self) -> bool {
        let mut state = self.lock();
        let begins = !state.has_task && state.count.upgrade().is_some();
        state.has_task |= begins;
        self.needs_task.store(false, Ordering::Relaxed);
        begins
    }

    /// Returns the number while it is wanted. Otherwise the task is over.
    pub(super) fn wanted(&self) -> Option<ReplicaCount> {
        let mut state = self.lock();
        let count = state.count.upgrade();
        state.has_task &= count.is_some();
        count
    }

    /// Notes that the runtime of the task was shut down. The next check starts another task.
    pub(super) fn lost_task(&self) {
        let mut state = self.lock();
        state.has_task = false;
        self.needs_task.store(state.count.upgrade().is_some(), Ordering::Relaxed);
    }

    /// Notes how long a call took.
    #[cfg(feature = "metrics")]
    pub(super) fn took(&self, round_trip: Duration) {
        self.round_trip_us.store(micros(round_trip).max(1), Ordering::Relaxed);
    }

    /// Returns how long the last call took. `None` before the first one.
    #[cfg(feature = "metrics")]
    pub(in crate::redis) fn round_trip(&self) -> Option<Duration> {
        let micros = self.round_trip_us.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Returns the last number while a limiter wants it.
    #[cfg(feature = "metrics")]
    pub(in crate::redis) fn last(&self) -> Option<u32> {
        self.lock().count.upgrade()?.get().map(u32::from)
    }

    /// A panic cannot leave a partial state behind this lock, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReplicaCounter {
    fn drop(&mut self) {
        self.dropped.notify_one();
    }
}

impl fmt::Debug for ReplicaCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.lock().count.upgrade();
        f.debug_struct("ReplicaCounter").field("replicas", &count.and_then(|count| count.get())).finish_non_exhaustive()
    }
}
