//! Calls wait in lanes. A task for each lane decides all that wait there together: it reads once,
//! and writes once.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future, mem,
    num::NonZeroUsize,
    sync::{Arc, Weak},
    time::Duration,
};

use foldhash::fast::RandomState;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{KeyValue, presence::Presence, values::Values};
use crate::{
    Error, ErrorKind, Key,
    lock::Lock,
    model::quota::MAX_EXACT,
    runtime::{self, Background, Running},
    store::{
        Deadline, answer_by,
        deny_cache::DenyCache,
        health::{Attempt, Health, Probed, Unanswered, silent},
    },
};

/// The most calls that are decided together.
const MOST_TOGETHER: usize = 128;

/// The most calls that wait in a lane.
const MOST_WAITING: usize = 16_384;

/// The most times that calls without a deadline are decided: others are always first.
const MOST_TRIES: u32 = 1_000;

/// The duty of the task of a lane: to decide the calls that wait.
const CALLS: u32 = 1;

/// The time that a probe may take.
const PROBE: Duration = Duration::from_secs(1);

/// Decides the calls of a lane one batch after the other. All states of a key lie in one lane,
/// unless they are those of a branch, so that calls of one process do not get in each other's way.
pub(super) struct Lanes<K> {
    pub(super) backend: K,
    pub(super) health: Health,
    pub(super) deny_cache: Option<DenyCache>,
    pub(super) presence: Presence,
    /// Processes count themselves, and show their limits.
    pub(super) is_shared: bool,
    lanes: Box<[Lane]>,
    pub(super) hasher: RandomState,
    me: Weak<Self>,
}

struct Lane {
    calls: Lock<VecDeque<Box<dyn Call>>>,
    task: Background,
}

impl<K: KeyValue> Lanes<K> {
    pub(super) fn new(
        backend: K,
        lanes: NonZeroUsize,
        deny_cache_cap: Duration,
        is_shared: bool,
    ) -> Arc<Self> {
        let lane = || Lane {
            calls: Lock::default(),
            task: Background::new(),
        };
        let lanes = std::iter::repeat_with(lane).take(lanes.get()).collect();
        Arc::new_cyclic(|me| Self {
            backend,
            health: Health::new(K::KIND, K::KIND.to_owned()),
            deny_cache: (!deny_cache_cap.is_zero()).then(|| DenyCache::new(deny_cache_cap)),
            presence: Presence::new(),
            is_shared,
            lanes,
            hasher: RandomState::default(),
            me: Weak::clone(me),
        })
    }

    /// Returns how many calls wait.
    pub(super) fn waiting(&self) -> usize {
        self.lanes.iter().map(|lane| lane.calls.lock().len()).sum()
    }

    /// Forgets remembered denials of a key, because units may have come back.
    pub(super) fn forget(&self, key: &Key) {
        if let Some(cache) = &self.deny_cache {
            cache.forget(key, &self.hasher);
        }
    }

    /// Waits until the call of a key was decided. `step` reads and changes the values of `names`,
    /// once for each try.
    pub(super) async fn ask<T: Send + 'static>(
        self: Arc<Self>,
        key: &Key,
        names: Vec<Vec<u8>>,
        deadline: Option<Deadline>,
        step: impl FnMut(&mut Values, &[Vec<u8>], u64) -> T + Send + 'static,
    ) -> Result<T, Error> {
        runtime::current()?;
        let epoch = self.health.breaker.epoch();
        let attempt = Attempt::new(&*self, deadline);
        let at = key.branch(0).level(1).hash(&self.hasher) as usize % self.lanes.len();
        let (answer, answered) = oneshot::channel();
        let lane = &self.lanes[at];
        {
            let mut calls = lane.calls.lock();
            if calls.len() >= MOST_WAITING {
                return Err(Error::new(
                    ErrorKind::Overloaded,
                    format!("{MOST_WAITING} calls wait for the store"),
                ));
            }
            calls.push_back(Box::new(Asked {
                names,
                deadline,
                step,
                decided: None,
                answer,
            }));
        }
        lane.task.ask(CALLS);
        lane.task
            .start(|running| Arc::clone(&self).drive(at, running));
        let lost = |_| {
            Err(Error::new(
                ErrorKind::ConnectionLost,
                "the runtime that asked the store was shut down",
            ))
        };
        let outcome = tokio::select! {
            biased;
            answer = answered => answer.unwrap_or_else(lost),
            () = self.health.until_opened_after(epoch) => Err(self.health.overtaken()),
        };
        // A call that ended because its deadline has come counts as late.
        if !matches!(&outcome, Err(error) if error.kind() == ErrorKind::Timeout) {
            attempt.end(outcome.is_ok());
        }
        outcome
    }

    /// Decides what waits in a lane, until nothing does.
    async fn drive(self: Arc<Self>, at: usize, mut running: Running) {
        while !running.end() {
            running.take(CALLS);
            loop {
                let calls: Vec<_> = {
                    let mut waiting = self.lanes[at].calls.lock();
                    let count = waiting.len().min(MOST_TOGETHER);
                    waiting.drain(..count).collect()
                };
                if calls.is_empty() {
                    break;
                }
                self.decide(calls).await;
            }
        }
    }

    /// Decides calls, again and again while others change what was read.
    async fn decide(&self, mut calls: Vec<Box<dyn Call>>) {
        for _ in 0..MOST_TRIES {
            for call in mem::take(&mut calls) {
                match call.deadline().filter(|deadline| deadline.is_over()) {
                    Some(deadline) => call.answer(Err(deadline.error())),
                    None if call.is_dropped() => {}
                    None => calls.push(call),
                }
            }
            if calls.is_empty() {
                return;
            }
            // A store that does not answer holds the lane no longer than anybody waits for it.
            let ends = calls.iter().map(|call| {
                call.deadline()
                    .filter(|deadline| deadline.instant().is_some())
            });
            let last = ends
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().max_by_key(|at| at.instant()));
            match answer_by(last, self.try_once(&mut calls)).await {
                Ok(false) => {
                    self.health.heard();
                    tokio::task::yield_now().await;
                }
                outcome => {
                    match &outcome {
                        Err(error) if is_away(error.kind()) => self.failed(error),
                        Err(error) if !is_answer(error.kind()) => {}
                        _ => self.health.heard(),
                    }
                    return calls
                        .into_iter()
                        .for_each(|call| call.answer(outcome.clone().map(drop)));
                }
            }
        }
        let error = Error::new(
            ErrorKind::Overloaded,
            format!("others changed the states {MOST_TRIES} times"),
        );
        calls
            .into_iter()
            .for_each(|call| call.answer(Err(error.clone())));
    }

    /// Decides calls on what is stored now. Returns `false` when others have changed it.
    async fn try_once(&self, calls: &mut [Box<dyn Call>]) -> Result<bool, Error> {
        let mut names: Vec<Vec<u8>> = calls
            .iter()
            .flat_map(|call| call.names())
            .cloned()
            .collect();
        names.sort_unstable();
        names.dedup();
        let read = self.backend.read(&names).await?;
        if read.values.len() != names.len() || read.now_us >= MAX_EXACT {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the store read other keys, or a time beyond 2^53 µs",
            ));
        }
        let mut values = Values::new(names, read.values);
        calls
            .iter_mut()
            .for_each(|call| call.decide(&mut values, read.now_us));
        let writes = values.into_writes();
        if writes.is_empty() {
            Ok(true)
        } else {
            self.backend.write(read.read, writes).await
        }
    }
}

/// Returns whether nothing can be asked before a probe was answered.
fn is_away(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Authentication
            | ErrorKind::ConnectionRefused
            | ErrorKind::Loading
            | ErrorKind::MasterDown
            | ErrorKind::ReadOnly
            | ErrorKind::Tls
            | ErrorKind::TooManyClients
            | ErrorKind::Unavailable
    )
}

/// Returns whether an error shows that the server is there.
fn is_answer(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::ConnectionLost | ErrorKind::Overloaded | ErrorKind::Timeout
    )
}

/// A store of bytes is probed as a server is.
impl<K: KeyValue> Probed for Lanes<K> {
    type Silent = Infallible;

    fn health(&self) -> &Health {
        &self.health
    }

    fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    fn is_connected(&self) -> bool {
        true
    }

    /// Returns twice the time of a trip: a decision takes two.
    async fn ping(&self) -> Result<Duration, Unanswered<Infallible>> {
        let sent = Instant::now();
        match timeout(PROBE, self.backend.ping()).await {
            Ok(Ok(())) => Ok(2 * sent.elapsed()),
            Ok(Err(error)) => Err((error, None)),
            Err(_) => Err((silent(K::KIND), None)),
        }
    }

    async fn listen(&self, _: &mut Infallible) -> Option<Duration> {
        future::pending().await
    }
}

/// A call that waits.
trait Call: Send {
    fn names(&self) -> &[Vec<u8>];
    fn deadline(&self) -> Option<Deadline>;

    /// Returns whether nobody waits for the answer.
    fn is_dropped(&self) -> bool;
    fn decide(&mut self, values: &mut Values, now_us: u64);

    /// Answers with what was decided last.
    fn answer(self: Box<Self>, outcome: Result<(), Error>);
}

struct Asked<T, F> {
    names: Vec<Vec<u8>>,
    deadline: Option<Deadline>,
    step: F,
    decided: Option<T>,
    answer: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Call for Asked<T, F>
where
    T: Send,
    F: FnMut(&mut Values, &[Vec<u8>], u64) -> T + Send,
{
    fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    fn is_dropped(&self) -> bool {
        self.answer.is_closed()
    }

    fn decide(&mut self, values: &mut Values, now_us: u64) {
        self.decided = Some((self.step)(values, &self.names, now_us));
    }

    fn answer(self: Box<Self>, outcome: Result<(), Error>) {
        let Self {
            decided, answer, ..
        } = *self;
        let outcome = match outcome {
            Ok(()) => decided.map(Ok),
            Err(error) => Some(Err(error)),
        };
        // A caller that has gone needs no answer.
        let _ = outcome.map(|outcome| answer.send(outcome));
    }
}
