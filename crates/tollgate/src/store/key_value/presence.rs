//! Processes that share what keeps the bytes count themselves and show their limits in it, as they
//! do in Redis. Both are values like all others.

use std::{
    fmt::Write as _,
    num::NonZeroU32,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::{KeyValue, lanes::Lanes, values::Values};
use crate::{
    Error,
    runtime::{Background, Running},
    store::{
        Deadline, Publication, ReplicaCount, ReplicaGroup, Spending, TOLD_EVERY,
        metrics::{self, Figures},
        presence::{
            CALL_TIMEOUT, Exchange, GroupCounter, INTERVAL, LAPSE_US, PROCESS, Publications,
            Publisher, ReplicaCounter, SUBJECT, Share,
        },
    },
};

/// Counts the replicas and shows the limits of a process, in one task.
pub(super) struct Presence {
    task: Background,
    counter: ReplicaCounter,
    publications: Publications,
    exchange: Exchange,
}

/// The duty to be present while a limiter wants a number, or is published.
const PRESENT: u32 = 1;

/// The duty to be present at once, because a group or a limiter is new.
const NOW: u32 = 2;

/// The duty to set the gauges, from the first check on.
const GAUGES: u32 = if metrics::IS_ON { 4 } else { 0 };

/// The time between two samples of the gauges.
const TICK: Duration = Duration::from_secs(1);

impl Presence {
    pub(super) fn new() -> Self {
        Self {
            task: Background::new(),
            counter: ReplicaCounter::new(),
            publications: Publications::default(),
            exchange: Exchange::default(),
        }
    }

    /// Returns the number of processes of a group, which is wanted from now on.
    pub(super) fn count<K: KeyValue>(
        &self,
        lanes: &Arc<Lanes<K>>,
        group: ReplicaGroup,
    ) -> ReplicaCount {
        let (count, is_new) = self.counter.count(group);
        self.start(lanes, if is_new { PRESENT | NOW } else { 0 });
        count
    }

    /// Shows these limits to operators from now on.
    pub(super) fn publish<K: KeyValue>(&self, lanes: &Arc<Lanes<K>>, limits: &Publication) {
        self.publications.add(limits);
        self.start(lanes, PRESENT | NOW);
    }

    /// Tells other processes what customers spend from now on.
    pub(super) fn exchange<K: KeyValue>(
        &self,
        lanes: &Arc<Lanes<K>>,
        group: ReplicaGroup,
        spending: &Spending,
    ) {
        self.exchange.add(group, spending);
        self.start(lanes, PRESENT | NOW);
    }

    /// Starts the task that a check needs. Without a runtime, the next check does.
    #[inline]
    pub(super) fn serve<K: KeyValue>(&self, lanes: &Arc<Lanes<K>>) {
        if !self.task.has(GAUGES) {
            self.start(lanes, GAUGES);
        }
    }

    #[cold]
    fn start<K: KeyValue>(&self, lanes: &Arc<Lanes<K>>, duties: u32) {
        if duties != 0 {
            self.task.ask(duties);
        }
        self.task
            .start(|running| run(Arc::downgrade(lanes), running));
    }
}

/// Counts the processes, shows the limits and sets the gauges, as long as the store is in use.
async fn run<K: KeyValue>(store: Weak<Lanes<K>>, mut running: Running) {
    let (mut group_counter, mut publisher) = (GroupCounter::new(), Publisher::default());
    let mut present_at = None;
    loop {
        let Some(lanes) = store.upgrade() else {
            return;
        };
        let is_new = running.take(NOW);
        let Presence {
            counter,
            publications,
            exchange,
            ..
        } = &lanes.presence;
        let has_gauges = running.is_asked(GAUGES);
        if has_gauges {
            let is_open = lanes.health.breaker.is_open();
            let figures = Figures {
                servers: 1,
                connected: usize::from(!is_open),
                breakers_open: usize::from(is_open),
                queued: lanes.waiting(),
                round_trip: counter.round_trip(),
                replicas: counter.last(),
            };
            metrics::record(lanes.backend.label(), &figures);
        }
        let (mut groups, mut limits, mut tells) = (Vec::new(), Vec::new(), false);
        let is_wanted = running.settle(PRESENT, || {
            (groups, limits) = (counter.groups(), publications.current());
            tells = exchange.is_used();
            !groups.is_empty() || !limits.is_empty() || tells
        });
        if is_new || present_at.is_none_or(|at| at <= Instant::now()) {
            let call = count(Arc::clone(&lanes), groups.clone());
            let pause = group_counter.count(counter, &groups, call).await;
            if !limits.is_empty() {
                let call = publish(Arc::clone(&lanes), limits.clone());
                publisher.publish(&limits, call).await;
            }
            let mut pause = pause.unwrap_or(INTERVAL);
            if tells {
                let reports = exchange.reports();
                let call = tell(Arc::clone(&lanes), reports.clone());
                exchange.tell(&reports, call).await;
                pause = pause.min(TOLD_EVERY);
            }
            present_at = Some(Instant::now() + pause.mul_f64(0.8 + 0.4 * fastrand::f64()));
        }
        drop(lanes);
        let next = present_at.filter(|_| is_wanted);
        let next = match has_gauges {
            true => Some(Instant::now() + TICK).into_iter().chain(next).min(),
            false => next,
        };
        match next {
            Some(next) => running.rest(next).await,
            None if running.end() => return,
            None => {}
        }
    }
}

/// Returns the name of a value of all processes.
fn name(end: impl std::fmt::Display) -> Vec<u8> {
    [b"{", SUBJECT.as_bytes(), b"}:", end.to_string().as_bytes()].concat()
}

/// Changes values of all processes, unless the breaker is open.
async fn ask<K: KeyValue, T: Send + 'static>(
    lanes: Arc<Lanes<K>>,
    names: Vec<Vec<u8>>,
    step: impl FnMut(&mut Values, &[Vec<u8>], u64) -> T + Send + 'static,
) -> Result<T, Error> {
    if let Some(refusal) = lanes.health.refusal_of(None) {
        return Err(refusal);
    }
    let deadline = Some(Deadline::after(CALL_TIMEOUT));
    lanes.ask(&SUBJECT, names, deadline, step).await
}

/// Makes this process known in each group, and returns the numbers of processes.
async fn count<K: KeyValue>(
    lanes: Arc<Lanes<K>>,
    groups: Vec<ReplicaGroup>,
) -> Result<Vec<NonZeroU32>, Error> {
    let names = groups.iter().map(name).collect();
    let step = |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
        names
            .iter()
            .map(|name| {
                let mut present = Lines::read(values.get(name), now_us);
                present.set(&PROCESS, "");
                let number = NonZeroU32::new(present.0.len() as u32).unwrap_or(NonZeroU32::MIN);
                present.write(values, name, now_us);
                number
            })
            .collect()
    };
    ask(lanes, names, step).await
}

/// Shows these limits, and returns the share that operators have set for each.
async fn publish<K: KeyValue>(
    lanes: Arc<Lanes<K>>,
    limits: Vec<Publication>,
) -> Result<Vec<Share>, Error> {
    let shown: Vec<_> = limits
        .iter()
        .map(|limits| (limits.name().to_owned(), limits.to_string()))
        .collect();
    let step = move |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
        let mut present = Lines::read(values.get(&names[0]), now_us);
        for (limiter, text) in &shown {
            present.set(limiter, text);
        }
        present.write(values, &names[0], now_us);
        let shares = values.get(&names[1]).unwrap_or_default();
        let shares = String::from_utf8_lossy(shares).into_owned();
        let share = |limiter: &str| {
            let line = shares
                .lines()
                .find_map(|line| line.split_once('=').filter(|line| line.0 == limiter))?;
            Some(line.1.trim().as_bytes().to_vec())
        };
        shown.iter().map(|(limiter, _)| share(limiter)).collect()
    };
    let names = vec![name("limits"), name("shares")];
    ask(lanes, names, step).await
}

/// Tells the report of each group, and returns those of the other processes.
async fn tell<K: KeyValue>(
    lanes: Arc<Lanes<K>>,
    reports: Vec<(ReplicaGroup, String)>,
) -> Result<Vec<String>, Error> {
    let names = reports
        .iter()
        .map(|(group, _)| name(format_args!("{group}:spent")))
        .collect();
    let step = move |values: &mut Values, names: &[Vec<u8>], now_us: u64| {
        let tell = |(name, (_, report)): (&Vec<u8>, &(_, String))| {
            let mut told = Lines::read(values.get(name), now_us);
            told.set(&PROCESS, report);
            let others = told.0.iter().filter(|line| line.1 != *PROCESS);
            let heard = others.map(|line| &*line.2).collect();
            told.write(values, name, now_us);
            heard
        };
        names.iter().zip(&reports).map(tell).collect()
    };
    ask(lanes, names, step).await
}

/// Lists who was present lately: a line for each, with a time in milliseconds, a name and a text.
struct Lines(Vec<(u64, String, String)>);

impl Lines {
    /// Reads the lines that have not lapsed.
    fn read(bytes: Option<&[u8]>, now_us: u64) -> Self {
        let text = String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let line = |line: &str| {
            let mut parts = line.splitn(3, '\t');
            let at_ms = parts.next()?.parse::<u64>().ok()?;
            // A clock that went back does not keep a process present for longer than twice.
            let is_current = at_ms.abs_diff(now_us / 1_000) < LAPSE_US / 1_000;
            let (name, text) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            is_current.then_some((at_ms, name, text))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Adds a line, or replaces that of the same name. It is stamped when it is written.
    fn set(&mut self, name: &str, text: &str) {
        let name = name.replace(['\t', '\n', '\r'], " ");
        self.0.retain(|line| line.1 != name);
        self.0
            .push((u64::MAX, name, text.replace(['\n', '\r'], " ")));
    }

    fn write(self, values: &mut Values, name: &[u8], now_us: u64) {
        let (now_ms, mut written) = (now_us / 1_000, String::new());
        for (at_ms, name, text) in self.0 {
            let at_ms = if at_ms == u64::MAX { now_ms } else { at_ms };
            // Writing to a text cannot fail.
            let _ = writeln!(written, "{at_ms}\t{name}\t{text}");
        }
        values.set(name, Some(written.into_bytes()), now_ms + LAPSE_US / 1_000);
    }
}
