use std::{
    fmt,
    num::NonZeroU32,
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
    ReplicaGroup,
    redis::backend::Backend,
    store::{ReplicaCount, WeakReplicaCount},
};

/// The most groups of a store. One call counts all of them. Limits beyond have one group together.
pub(super) const MAX_GROUPS: usize = 32;

/// Holds the numbers of processes that a store counted last, one for each group, and knows whether a task counts.
pub(in crate::redis) struct ReplicaCounter {
    /// Tells whether a number is wanted and no task counts. Read with each check.
    needs_task: AtomicBool,
    state: Mutex<State>,
    /// Wakes the task when the store is dropped, and when a group is added.
    pub(super) changed: Arc<Notify>,
    /// The time of the last call in microseconds, 0 before the first one.
    #[cfg(feature = "metrics")]
    round_trip_us: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Each is alive as long as a limiter wants it.
    counts: Vec<(ReplicaGroup, WeakReplicaCount)>,
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
            changed: Arc::default(),
            #[cfg(feature = "metrics")]
            round_trip_us: AtomicU64::new(0),
        }
    }

    /// Returns whether a task has to be started.
    #[inline]
    pub(in crate::redis) fn needs_task(&self) -> bool {
        self.needs_task.load(Ordering::Relaxed)
    }

    /// Returns the number of a group, which is wanted from now on.
    pub(in crate::redis) fn count(&self, group: ReplicaGroup) -> ReplicaCount {
        let mut state = self.lock();
        let wanted = state.wanted();
        let find = |group| wanted.iter().find(|(wanted, _)| *wanted == group).map(|(_, count)| count.clone());
        let group = if find(group).is_some() || wanted.len() < MAX_GROUPS { group } else { ReplicaGroup::FURTHER };
        let count = find(group).unwrap_or_else(|| {
            let count = ReplicaCount::new();
            state.counts.push((group, count.downgrade()));
            if state.has_task {
                self.changed.notify_one();
            }
            count
        });
        self.needs_task.store(!state.has_task, Ordering::Relaxed);
        count
    }

    /// Returns whether the caller has to start the task that counts.
    pub(super) fn begin_task(&self) -> bool {
        let mut state = self.lock();
        let begins = !state.has_task && !state.wanted().is_empty();
        state.has_task |= begins;
        self.needs_task.store(false, Ordering::Relaxed);
        begins
    }

    /// Returns the numbers that are wanted. When there is none, the task is over.
    pub(super) fn wanted(&self) -> Vec<(ReplicaGroup, ReplicaCount)> {
        let mut state = self.lock();
        let wanted = state.wanted();
        state.has_task &= !wanted.is_empty();
        wanted
    }

    /// Notes that the runtime of the task was shut down. The next check starts another task.
    pub(super) fn lost_task(&self) {
        let mut state = self.lock();
        state.has_task = false;
        self.needs_task.store(!state.wanted().is_empty(), Ordering::Relaxed);
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

    /// Returns the greatest of the last numbers that limiters want.
    pub(in crate::redis) fn last(&self) -> Option<NonZeroU32> {
        self.lock().wanted().iter().filter_map(|(_, count)| count.get()).max()
    }

    /// A panic cannot leave a partial state behind this lock, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the numbers that limiters want, and forgets all others.
    fn wanted(&mut self) -> Vec<(ReplicaGroup, ReplicaCount)> {
        let mut wanted = Vec::new();
        self.counts.retain(|(group, count)| {
            let count = count.upgrade();
            let is_wanted = count.is_some();
            wanted.extend(count.map(|count| (*group, count)));
            is_wanted
        });
        wanted
    }
}

impl Drop for ReplicaCounter {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

impl fmt::Debug for ReplicaCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaCounter").field("replicas", &self.last()).finish_non_exhaustive()
    }
}
