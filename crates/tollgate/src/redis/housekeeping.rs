//! Does what a store does on its own: counts the processes, shows limits to operators, sets its gauges, and returns units that
//! nobody asks for.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    backend::Backend,
    metrics::{StoreMetrics, StoreState},
    pots::{Holder, Pots},
    publisher::{Publications, Publisher},
    replicas::{Census, INTERVAL, ReplicaCounter},
};
use crate::{
    Error, PolicySet,
    runtime::{Background, Running},
    store::{Publication, ReplicaCount, ReplicaGroup},
};

/// Holds what the task of a store needs beside the store.
pub(super) struct Housekeeping {
    task: Background,
    counter: ReplicaCounter,
    publications: Publications,
    metrics: StoreMetrics,
}

/// Has servers and units that are looked after.
pub(super) trait Household: Send + Sync + 'static {
    fn housekeeping(&self) -> &Housekeeping;
    fn prefix(&self) -> &str;
    fn backend(&self) -> &Backend;
    fn pots(&self) -> &Pots;

    /// Returns units to the server.
    fn release(&self, holders: Vec<Holder>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The duty to set the gauges, from the first check on.
const GAUGES: u32 = if StoreMetrics::IS_ON { 1 } else { 0 };

/// The duty to be present at the server: to count the processes while a limiter wants a number, and to show limits while a
/// limiter is published.
const PRESENT: u32 = 2;

/// The duty to do so at once, because a group or a limiter is new.
const PRESENT_NOW: u32 = 8;

/// The duty to look for units that nobody asks for, while there are entries of leased keys.
const SWEEP: u32 = 4;

/// The time between two samples of the gauges, and between two sweeps.
const TICK: Duration = Duration::from_secs(1);

impl Housekeeping {
    pub(super) fn new() -> Self {
        Self {
            task: Background::new(),
            counter: ReplicaCounter::new(),
            publications: Publications::default(),
            metrics: StoreMetrics::default(),
        }
    }

    /// Returns whether the task runs that a check of these policies needs.
    #[inline]
    pub(super) fn serves(&self, policies: &PolicySet) -> bool {
        self.task.has(duties(policies))
    }
}

fn duties(policies: &PolicySet) -> u32 {
    if policies.is_leased() { GAUGES | SWEEP } else { GAUGES }
}

/// Starts the task that a check of these policies needs. Without a runtime, the next check does.
#[cold]
pub(super) fn serve<S: Household>(store: &Arc<S>, policies: &PolicySet) {
    store.housekeeping().task.ask(duties(policies));
    start(store);
}

/// Returns the number of processes of a group, which is wanted from now on.
pub(super) fn count<S: Household>(store: &Arc<S>, group: ReplicaGroup) -> ReplicaCount {
    let Housekeeping { task, counter, .. } = store.housekeeping();
    let (count, is_new) = counter.count(group);
    if is_new {
        task.ask(PRESENT | PRESENT_NOW);
    }
    start(store);
    count
}

/// Shows these limits to operators from now on.
pub(super) fn publish<S: Household>(store: &Arc<S>, limits: &Publication) {
    let Housekeeping { task, publications, .. } = store.housekeeping();
    publications.add(limits);
    task.ask(PRESENT | PRESENT_NOW);
    start(store);
}

fn start<S: Household>(store: &Arc<S>) {
    let housekeeper = |running| Housekeeper {
        store: Arc::downgrade(store),
        running,
        gauges: Gauges { due: None },
        census: Census::new(),
        publisher: Publisher::default(),
        present_at: None,
        sweep_at: None,
    };
    store.housekeeping().task.start(|running| housekeeper(running).run());
}

/// Does what is due as long as the store is in use, and sleeps meanwhile. Ends when the store has no duties.
struct Housekeeper<S> {
    store: Weak<S>,
    running: Running,
    gauges: Gauges,
    census: Census,
    publisher: Publisher,
    present_at: Option<Instant>,
    sweep_at: Option<Instant>,
}

impl<S: Household> Housekeeper<S> {
    async fn run(mut self) {
        loop {
            let Some(store) = self.store.upgrade() else { return };
            if self.running.is_asked(GAUGES) {
                self.gauges.set_when_due(&*store);
            }
            self.be_present(&*store).await;
            self.sweep(&*store).await;
            drop(store);
            match [self.gauges.due, self.present_at, self.sweep_at].into_iter().flatten().min() {
                Some(next) => self.running.rest(next).await,
                None if self.running.end() => return,
                None => {}
            }
        }
    }

    /// Counts the processes and shows the limits when that is due, and at once for what is new.
    async fn be_present(&mut self, store: &S) {
        let Housekeeping { counter, publications, .. } = store.housekeeping();
        let is_new = self.running.take(PRESENT_NOW);
        let (mut groups, mut limits) = (Vec::new(), Vec::new());
        self.running.settle(PRESENT, || {
            (groups, limits) = (counter.groups(), publications.current());
            !groups.is_empty() || !limits.is_empty()
        });
        let is_due = self.present_at.is_none_or(|at| at <= Instant::now());
        if is_new || is_due || groups.is_empty() && limits.is_empty() {
            let mut pause = self.gauges.beside(store, self.census.count(store.backend(), counter, &groups)).await;
            if !limits.is_empty() {
                self.gauges.beside(store, self.publisher.publish(store.backend(), &limits)).await;
                pause = pause.or(Some(INTERVAL));
            }
            self.present_at = pause.map(|pause| Instant::now() + pause.mul_f64(0.8 + 0.4 * fastrand::f64()));
        }
    }

    /// Returns units that nobody asks for, when it is time to look for them.
    async fn sweep(&mut self, store: &S) {
        let now = Instant::now();
        if self.sweep_at.is_some_and(|at| at <= now) {
            let idle = store.pots().sweep();
            if !idle.is_empty() {
                // Units that cannot be returned lapse.
                let _ = self.gauges.beside(store, timeout(TICK, store.release(idle))).await;
            }
            self.sweep_at = None;
            self.running.settle(SWEEP, || !store.pots().is_empty());
        }
        if self.running.is_asked(SWEEP) {
            self.sweep_at.get_or_insert(now + TICK);
        }
    }
}

/// Sets the gauges of a store once a second.
struct Gauges {
    /// `None` before the first time.
    due: Option<Instant>,
}

impl Gauges {
    fn set_when_due(&mut self, store: &impl Household) {
        let now = Instant::now();
        if self.due.is_none_or(|due| due <= now) {
            record(store);
            self.due = Some(now + TICK);
        }
    }

    /// Waits for a call, and sets the gauges meanwhile.
    async fn beside<T>(&mut self, store: &impl Household, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        while let Some(due) = self.due {
            match timeout_at(due, &mut call).await {
                Ok(done) => return done,
                Err(_) => self.set_when_due(store),
            }
        }
        call.await
    }
}

fn record(store: &impl Household) {
    let Housekeeping { counter, metrics, .. } = store.housekeeping();
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
    metrics.record(store.prefix(), &state);
    metrics.record_leases(store.prefix(), &store.pots().counts());
}

impl std::fmt::Debug for Housekeeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Housekeeping").field("replicas", &self.counter.last()).finish_non_exhaustive()
    }
}
