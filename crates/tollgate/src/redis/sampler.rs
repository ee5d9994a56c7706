//! Sets the gauges of a store once a second.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify, time::timeout};

use super::{pots::Pots, replicas::Counts};
use crate::redis::metrics::{StoreMetrics, StoreState};

const INTERVAL: Duration = Duration::from_secs(1);

/// Knows whether a task sets the gauges of a store.
pub(in crate::redis) struct Sampler {
    needs_task: AtomicBool,
    /// Wakes the task when the store is dropped.
    dropped: Arc<Notify>,
    metrics: StoreMetrics,
}

/// Has servers whose state is sampled.
pub(in crate::redis) trait Sampled: Counts {
    fn prefix(&self) -> &str;
    fn sampler(&self) -> &Sampler;
    fn pots(&self) -> &Pots;
}

impl Sampler {
    pub(in crate::redis) fn new() -> Self {
        Self { needs_task: AtomicBool::new(true), dropped: Arc::default(), metrics: StoreMetrics::default() }
    }

    /// Returns whether a task has to be started.
    #[inline]
    pub(in crate::redis) fn needs_task(&self) -> bool {
        self.needs_task.load(Ordering::Relaxed)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.dropped.notify_one();
    }
}

/// Starts the task unless it runs. Without a runtime, the next check does.
pub(in crate::redis) fn start<S: Sampled>(store: &Arc<S>) {
    let Ok(runtime) = Handle::try_current() else { return };
    if store.sampler().needs_task.swap(false, Ordering::Relaxed) {
        let dropped = Arc::clone(&store.sampler().dropped);
        runtime.spawn(SampleTask { store: Arc::downgrade(store), dropped }.run());
    }
}

/// Samples the state of a store as long as the store is in use.
struct SampleTask<S: Sampled> {
    store: Weak<S>,
    dropped: Arc<Notify>,
}

impl<S: Sampled> SampleTask<S> {
    async fn run(self) {
        while let Some(store) = self.store.upgrade() {
            store.sampler().metrics.record(store.prefix(), &state(&*store));
            store.sampler().metrics.record_leases(store.prefix(), &store.pots().counts());
            drop(store);
            let _ = timeout(INTERVAL, self.dropped.notified()).await;
        }
    }
}

impl<S: Sampled> Drop for SampleTask<S> {
    /// Lets another task sample when the runtime was shut down.
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.sampler().needs_task.store(true, Ordering::Relaxed);
        }
    }
}

fn state(store: &impl Sampled) -> StoreState {
    let counter = store.counter();
    let mut state = StoreState {
        round_trip: counter.round_trip(),
        replicas: counter.last().map(u32::from),
        ..StoreState::default()
    };
    for handle in store.backend().known_servers() {
        state.servers += 1;
        state.connected += usize::from(handle.server.is_connected());
        state.breakers_open += usize::from(handle.server.breaker().is_open());
        state.queued += handle.queued();
    }
    state
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}
