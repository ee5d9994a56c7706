//! Does what a store does on its own: counts the processes, shows limits to operators, tells others
//! who spends much, sets its gauges, and returns units that nobody asks for.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, timeout, timeout_at};

use super::{backend::Backend, dispatch::Sender, metrics as leases, replicas};
use crate::{
    PolicySet,
    runtime::{Background, Running},
    store::{
        Publication, ReplicaCount, ReplicaGroup, Spending, TOLD_EVERY,
        health::Probed,
        metrics::{self, Figures},
        presence::{Exchange, GroupCounter, INTERVAL, Publications, Publisher, ReplicaCounter},
    },
};

/// Keeps what all clones of a store share: its backend, and what the task needs that looks after
/// it.
pub(super) struct Inner {
    pub(super) backend: Backend,
    task: Background,
    counter: ReplicaCounter,
    publications: Publications,
    exchange: Exchange,
}

/// The duty to set the gauges, from the first check on.
const GAUGES: u32 = if metrics::IS_ON { 1 } else { 0 };

/// The duty to be present at the server: to count the processes while a limiter wants a number, and
/// to show limits while a limiter is published.
const PRESENT: u32 = 2;

/// The duty to do so at once, because a group or a limiter is new.
const PRESENT_NOW: u32 = 8;

/// The duty to look for units that nobody asks for, while there are entries of leased keys.
const SWEEP: u32 = 4;

/// The time between two samples of the gauges, and between two sweeps.
const TICK: Duration = Duration::from_secs(1);

impl Inner {
    pub(super) fn new(backend: Backend) -> Arc<Self> {
        Arc::new(Self {
            backend,
            task: Background::new(),
            counter: ReplicaCounter::new(),
            publications: Publications::default(),
            exchange: Exchange::default(),
        })
    }

    /// Starts the task that a check of these policies needs. Without a runtime, the next check
    /// does.
    #[inline]
    pub(super) fn serve(self: &Arc<Self>, policies: &PolicySet) {
        let duties = if policies.is_leased() {
            GAUGES | SWEEP
        } else {
            GAUGES
        };
        if !self.task.has(duties) {
            self.start(duties);
        }
    }

    /// Returns the number of processes of a group, which is wanted from now on.
    pub(super) fn count(self: &Arc<Self>, group: ReplicaGroup) -> ReplicaCount {
        let (count, is_new) = self.counter.count(group);
        self.start(if is_new { PRESENT | PRESENT_NOW } else { 0 });
        count
    }

    /// Shows these limits to operators from now on.
    pub(super) fn publish(self: &Arc<Self>, limits: &Publication) {
        self.publications.add(limits);
        self.start(PRESENT | PRESENT_NOW);
    }

    /// Tells other processes what customers spend from now on.
    pub(super) fn exchange(self: &Arc<Self>, group: ReplicaGroup, spending: &Spending) {
        self.exchange.add(group, spending);
        self.start(PRESENT | PRESENT_NOW);
    }

    #[cold]
    fn start(self: &Arc<Self>, duties: u32) {
        self.task.ask(duties);
        let housekeeper = |running| Housekeeper {
            store: Arc::downgrade(self),
            running,
            gauges: Gauges { due: None },
            group_counter: GroupCounter::new(),
            publisher: Publisher::default(),
            present_at: None,
            sweep_at: None,
        };
        self.task.start(|running| housekeeper(running).run());
    }
}

/// Does what is due as long as the store is in use, and sleeps meanwhile. Ends when the store has
/// no duties.
struct Housekeeper {
    store: Weak<Inner>,
    running: Running,
    gauges: Gauges,
    group_counter: GroupCounter,
    publisher: Publisher,
    present_at: Option<Instant>,
    sweep_at: Option<Instant>,
}

impl Housekeeper {
    async fn run(mut self) {
        loop {
            let Some(store) = self.store.upgrade() else {
                return;
            };
            if self.running.is_asked(GAUGES) {
                self.gauges.set_when_due(&store);
            }
            self.be_present(&store).await;
            self.sweep(&store).await;
            drop(store);
            match [self.gauges.due, self.present_at, self.sweep_at]
                .into_iter()
                .flatten()
                .min()
            {
                Some(next) => self.running.rest(next).await,
                None if self.running.end() => return,
                None => {}
            }
        }
    }

    /// Counts the processes and shows the limits when that is due, and at once for what is new.
    async fn be_present(&mut self, store: &Inner) {
        let Inner {
            backend,
            counter,
            publications,
            exchange,
            ..
        } = store;
        let is_new = self.running.take(PRESENT_NOW);
        let (mut groups, mut limits, mut tells) = (Vec::new(), Vec::new(), false);
        let is_present = self.running.settle(PRESENT, || {
            (groups, limits) = (counter.groups(), publications.current());
            tells = exchange.is_used();
            !groups.is_empty() || !limits.is_empty() || tells
        });
        let is_due = self.present_at.is_none_or(|at| at <= Instant::now());
        if is_new || is_due || !is_present {
            let mut pause = self
                .gauges
                .beside(
                    store,
                    self.group_counter
                        .count(counter, &groups, replicas::count(backend, &groups)),
                )
                .await;
            if !limits.is_empty() {
                self.gauges
                    .beside(
                        store,
                        self.publisher
                            .publish(&limits, replicas::publish(backend, &limits)),
                    )
                    .await;
                pause = pause.or(Some(INTERVAL));
            }
            if tells {
                let reports = exchange.reports();
                self.gauges
                    .beside(
                        store,
                        exchange.tell(&reports, replicas::tell(backend, &reports)),
                    )
                    .await;
                pause = Some(pause.map_or(TOLD_EVERY, |pause| pause.min(TOLD_EVERY)));
            }
            self.present_at =
                pause.map(|pause| Instant::now() + pause.mul_f64(0.8 + 0.4 * fastrand::f64()));
        }
    }

    /// Returns units that nobody asks for, when it is time to look for them.
    async fn sweep(&mut self, store: &Inner) {
        let now = Instant::now();
        if self.sweep_at.is_some_and(|at| at <= now) {
            let idle = store.backend.leased_units.sweep();
            if !idle.is_empty() {
                // Units that cannot be returned lapse.
                let _ = self
                    .gauges
                    .beside(store, timeout(TICK, store.backend.release(idle)))
                    .await;
            }
            self.sweep_at = None;
            self.running
                .settle(SWEEP, || !store.backend.leased_units.is_empty());
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
    fn set_when_due(&mut self, store: &Inner) {
        let now = Instant::now();
        if self.due.is_none_or(|due| due <= now) {
            let Inner {
                backend, counter, ..
            } = store;
            let servers = backend.known_servers();
            let count =
                |is: fn(&Sender) -> bool| servers.iter().filter(|server| is(server)).count();
            let figures = Figures {
                servers: servers.len(),
                connected: count(|sender| sender.server.is_connected()),
                breakers_open: count(|sender| sender.server.breaker().is_open()),
                queued: servers.iter().map(|sender| sender.queued()).sum(),
                round_trip: counter.round_trip(),
                replicas: counter.last(),
            };
            metrics::record(&backend.prefix, &figures);
            leases::record(backend);
            self.due = Some(now + TICK);
        }
    }

    /// Waits for a call, and sets the gauges meanwhile.
    async fn beside<T>(&mut self, store: &Inner, call: impl Future<Output = T>) -> T {
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
