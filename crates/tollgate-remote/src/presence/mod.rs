//! Processes make themselves and their limits known to each other and to operators, wherever the
//! counts are. A task of each store does so, sets its gauges, and returns what nobody uses.
//! The calls are those of each store. What they carry is in `counter.rs`, `exceptions.rs`,
//! `exchange.rs`, `publisher.rs` and `reporter.rs`.

mod counter;
mod exceptions;
mod exchange;
mod held;
mod publisher;
mod reporter;

use std::{
    future::Future,
    num::NonZeroU32,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::{Instant, timeout, timeout_at};

pub use counter::{CALL_TIMEOUT, LAPSE_US, PROCESS, SUBJECT};
use counter::{GroupCounter, INTERVAL, ReplicaCounter};
use exceptions::ExceptionFollower;
pub use exceptions::{ExceptionNews, UNKNOWN};
use exchange::Exchange;
pub use publisher::Share;
use publisher::{Publications, Publisher};
use reporter::Reporter;
pub use reporter::{REPORT_US, ReportCall};
use tollgate_core::{
    Error,
    raw::{
        TOLD_EVERY, metrics,
        runtime::{Background, Running},
    },
    store::{ExceptionsInForce, Publication, ReplicaCount, ReplicaGroup, RulesInForce, Spending},
};

/// A store whose processes make themselves known: the calls by which they do.
pub trait Present: Send + Sync + 'static {
    /// Returns what the task of the store has to do.
    fn presence(&self) -> &Presence;

    /// Makes this process known in each group, and returns the numbers of processes.
    fn count(
        self: &Arc<Self>,
        groups: &[ReplicaGroup],
    ) -> impl Future<Output = Result<Vec<NonZeroU32>, Error>> + Send;

    /// Shows these limits, and returns the share that operators have set for each.
    fn show(
        self: &Arc<Self>,
        limits: &[Publication],
    ) -> impl Future<Output = Result<Vec<Share>, Error>> + Send;

    /// Returns the exceptions of the store, if their version is not the known one.
    fn exceptions(
        self: &Arc<Self>,
        known: String,
    ) -> impl Future<Output = Result<ExceptionNews, Error>> + Send;

    /// Keeps what this process reports to operators for [`REPORT_US`], in the place of what it
    /// reported before.
    fn report(
        self: &Arc<Self>,
        report: &ReportCall,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Sends the report of each group, and returns what the other processes report.
    fn tell(
        self: &Arc<Self>,
        reports: &[(ReplicaGroup, String)],
    ) -> impl Future<Output = Result<Vec<String>, Error>> + Send;

    /// Sets the gauges of the store.
    fn sample(&self);

    /// Returns what nobody uses.
    fn sweep(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns whether there is anything that may have to be returned later.
    fn has_to_sweep(&self) -> bool {
        false
    }
}

/// Says what the task of a store has to do.
pub struct Presence {
    task: Background,
    counter: ReplicaCounter,
    publications: Publications,
    exceptions: ExceptionFollower,
    exchange: Exchange,
    reporter: Reporter,
}

tollgate_core::debug_fields! { Presence: .. }

/// The duty to set the gauges, from the first check on.
const GAUGES: u32 = if metrics::IS_ON { 1 } else { 0 };

/// The duty to be present: to count the processes while a limiter wants a number, and to show
/// limits while a limiter is published.
const PRESENT: u32 = 2;

/// The duty to be present at once, because a group or a limiter is new.
const NOW: u32 = 4;

/// The duty to look for what nobody uses.
const SWEEP: u32 = 8;

/// The time between two samples of the gauges, and between two sweeps.
const TICK: Duration = Duration::from_secs(1);

impl Default for Presence {
    fn default() -> Self {
        Self::new()
    }
}

impl Presence {
    /// Creates the duties of a store that has none yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            task: Background::new(),
            counter: ReplicaCounter::new(),
            publications: Publications::default(),
            exceptions: ExceptionFollower::default(),
            exchange: Exchange::default(),
            reporter: Reporter::default(),
        }
    }

    /// Starts the task that a check needs. Without a runtime, the next check does.
    #[inline]
    pub fn serve<S: Present>(&self, store: &Arc<S>, sweeps: bool) {
        let duties = if sweeps { GAUGES | SWEEP } else { GAUGES };
        if !self.task.has(duties) {
            self.start(store, duties);
        }
    }

    /// Returns the number of processes of a group, which is wanted from now on.
    pub fn count<S: Present>(&self, store: &Arc<S>, group: ReplicaGroup) -> ReplicaCount {
        let (count, is_new) = self.counter.count(group);
        self.start(store, if is_new { PRESENT | NOW } else { 0 });
        count
    }

    /// Shows these limits to operators from now on.
    pub fn publish<S: Present>(&self, store: &Arc<S>, limits: &Publication) {
        self.publications.add(limits);
        self.start(store, PRESENT | NOW);
    }

    /// Reports to operators that these rules are in force from now on.
    pub fn publish_rules<S: Present>(&self, store: &Arc<S>, rules: &RulesInForce) {
        self.reporter.add(rules);
        self.start(store, PRESENT | NOW);
    }

    /// Keeps these exceptions up to date from now on.
    pub fn follow_exceptions<S: Present>(&self, store: &Arc<S>, exceptions: &ExceptionsInForce) {
        self.exceptions.add(exceptions);
        self.start(store, PRESENT | NOW);
    }

    /// Reads the exceptions at once, because this process has changed them.
    pub fn refresh<S: Present>(&self, store: &Arc<S>) {
        if self.exceptions.is_used() {
            self.start(store, PRESENT | NOW);
        }
    }

    /// Reports to other processes what customers spend from now on.
    pub fn exchange<S: Present>(&self, store: &Arc<S>, group: ReplicaGroup, spending: &Spending) {
        self.exchange.add(group, spending);
        self.start(store, PRESENT | NOW);
    }

    /// Returns how long the last call took. `None` before the first one.
    pub fn round_trip(&self) -> Option<Duration> {
        self.counter.round_trip()
    }

    /// Returns the greatest of the last numbers of processes that limiters want.
    pub fn last(&self) -> Option<NonZeroU32> {
        self.counter.last()
    }

    #[cold]
    fn start<S: Present>(&self, store: &Arc<S>, duties: u32) {
        self.task.ask(duties);
        let housekeeper = |running| Housekeeper {
            store: Arc::downgrade(store),
            running,
            gauges_at: None,
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
struct Housekeeper<S> {
    store: Weak<S>,
    running: Running,
    /// `None` before the first time.
    gauges_at: Option<Instant>,
    group_counter: GroupCounter,
    publisher: Publisher,
    present_at: Option<Instant>,
    sweep_at: Option<Instant>,
}

impl<S: Present> Housekeeper<S> {
    async fn run(mut self) {
        while let Some(store) = self.store.upgrade() {
            if self.running.is_asked(GAUGES) && self.gauges_at.is_none_or(|at| at <= Instant::now())
            {
                sample(&*store, &mut self.gauges_at);
            }
            self.announce(&store).await;
            self.sweep(&store).await;
            drop(store);
            let next = [self.gauges_at, self.present_at, self.sweep_at];
            match next.into_iter().flatten().min() {
                Some(next) => self.running.rest(next).await,
                None if self.running.end() => return,
                None => {}
            }
        }
    }

    /// Counts the processes and shows the limits when that is due, and at once for what is new.
    async fn announce(&mut self, store: &Arc<S>) {
        let Presence {
            counter,
            publications,
            exceptions,
            exchange,
            reporter,
            ..
        } = store.presence();
        let is_new = self.running.take(NOW);
        let (mut groups, mut limits, mut has_reports) = (Vec::new(), Vec::new(), false);
        let mut has_exceptions = false;
        let is_present = self.running.finish(PRESENT, || {
            (groups, limits) = (counter.groups(), publications.current());
            has_reports = exchange.is_used();
            has_exceptions = exceptions.is_used();
            let has_rules = !reporter.rules().is_empty();
            !groups.is_empty() || !limits.is_empty() || has_rules || has_reports || has_exceptions
        });
        let is_due = self.present_at.is_none_or(|at| at <= Instant::now());
        if !is_new && !is_due && is_present {
            return;
        }
        let gauges_at = &mut self.gauges_at;
        let count = store.count(&groups);
        let count = self.group_counter.count(counter, &groups, count);
        let mut pause = with_gauges(&**store, gauges_at, count).await;
        if !limits.is_empty() {
            let show = self.publisher.publish(&limits, store.show(&limits));
            with_gauges(&**store, gauges_at, show).await;
            pause = pause.or(Some(INTERVAL));
        }
        if has_exceptions {
            let follow = exceptions.follow(|known| store.exceptions(known));
            with_gauges(&**store, gauges_at, follow).await;
            pause = pause.or(Some(INTERVAL));
        }
        // After the shares, so that the report has those in force.
        if let Some(call) = reporter.next(&groups, &limits) {
            let result = with_gauges(&**store, gauges_at, store.report(&call)).await;
            let is_kept = reporter.ended(call, result);
            // A withdrawal that failed is tried again.
            if is_present || !is_kept {
                pause = pause.or(Some(INTERVAL));
            }
        }
        if has_reports {
            let reports = exchange.reports();
            let tell = exchange.tell(&reports, store.tell(&reports));
            with_gauges(&**store, gauges_at, tell).await;
            pause = Some(pause.map_or(TOLD_EVERY, |pause| pause.min(TOLD_EVERY)));
        }
        self.present_at =
            pause.map(|pause| Instant::now() + pause.mul_f64(0.8 + 0.4 * fastrand::f64()));
    }

    async fn sweep(&mut self, store: &Arc<S>) {
        let now = Instant::now();
        if self.sweep_at.is_some_and(|at| at <= now) {
            let sweep = timeout(TICK, store.sweep());
            // What cannot be returned lapses.
            let _ = with_gauges(&**store, &mut self.gauges_at, sweep).await;
            self.sweep_at = None;
            self.running.finish(SWEEP, || store.has_to_sweep());
        }
        if self.running.is_asked(SWEEP) {
            self.sweep_at.get_or_insert(now + TICK);
        }
    }
}

/// Waits for a call, and sets the gauges meanwhile.
async fn with_gauges<T>(
    store: &impl Present,
    gauges_at: &mut Option<Instant>,
    call: impl Future<Output = T>,
) -> T {
    let mut call = pin!(call);
    while let Some(due) = *gauges_at {
        match timeout_at(due, &mut call).await {
            Ok(done) => return done,
            Err(_) => sample(store, gauges_at),
        }
    }
    call.await
}

fn sample(store: &impl Present, gauges_at: &mut Option<Instant>) {
    store.sample();
    *gauges_at = Some(Instant::now() + TICK);
}
