//! Calls wait in one queue. A task for each lane takes what waits and decides it together: it reads
//! once, and writes once.
//! What a call decides is a step of `store/step.rs`, over the bytes in `values.rs`.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    convert::Infallible,
    future, mem,
    num::NonZeroUsize,
    sync::{Arc, Weak},
    time::Duration,
};

use foldhash::fast::RandomState;
use smallvec::{SmallVec, smallvec};
use tokio::{
    sync::oneshot,
    task,
    time::{Instant, timeout},
};

use super::{KeyValue, values::Values};
use crate::{
    deny_cache::DenyCache,
    health::{Attempt, Health, Probed, Unanswered, silent},
    presence::Presence,
};
use tollgate_core::{
    Error, ErrorKind, Key,
    raw::{KeyParts, Lock, MAX_EXACT, answer_by, runtime},
    store::Deadline,
};

/// The most calls that are decided together.
const MOST_TOGETHER: usize = 128;

/// The most calls that wait.
const MOST_WAITING: usize = 65_536;

/// The most times that calls without a deadline are decided: others are always first.
const MOST_TRIES: u32 = 1_000;

/// The time that a probe may take. A store that may need longer to connect goes on when a probe is
/// given up, as the one in PostgreSQL does: a later probe finds the connection.
const PROBE: Duration = Duration::from_secs(1);

/// Decides calls in batches, as many at a time as there are lanes.
pub(super) struct Lanes<K> {
    pub(super) backend: K,
    pub(super) health: Health,
    pub(super) deny_cache: Option<DenyCache>,
    pub(super) presence: Presence,
    /// Processes count themselves, and show their limits.
    pub(super) is_shared: bool,
    queue: Lock<LaneQueue>,
    pub(super) hasher: RandomState,
    me: Weak<Self>,
}

/// The calls that wait, by the hashes of their keys. Calls of one key are decided in the order in
/// which they came, and never in two lanes, where they would get in each other's way. Only those of
/// a branch of another key may.
struct LaneQueue {
    /// The waiting calls of each key that has any, or has some in a lane.
    keys: HashMap<u64, SmallVec<[Box<dyn LaneCall>; 1]>, RandomState>,
    /// The keys that have waiting calls and none in a lane.
    ready: VecDeque<u64>,
    waiting: usize,
    /// The lanes that have no task.
    free: usize,
}

/// Decides the calls of a lane, as its task. The lane is free again when it is dropped.
struct LaneWorker<K: KeyValue> {
    lanes: Arc<Lanes<K>>,
    /// The keys of the calls that it decides.
    keys: Vec<u64>,
    is_free: bool,
}

impl LaneQueue {
    fn push(&mut self, key: u64, call: Box<dyn LaneCall>) {
        self.waiting += 1;
        match self.keys.entry(key) {
            Entry::Occupied(mut calls) => calls.get_mut().push(call),
            Entry::Vacant(new) => {
                new.insert(smallvec![call]);
                self.ready.push_back(key);
            }
        }
    }

    /// Takes calls for a lane, and adds their keys to those that it decides.
    fn take(&mut self, keys: &mut Vec<u64>) -> Vec<Box<dyn LaneCall>> {
        let mut taken = Vec::with_capacity(self.waiting.min(MOST_TOGETHER));
        while taken.len() < MOST_TOGETHER
            && let Some(key) = self.ready.pop_front()
        {
            if let Some(calls) = self.keys.get_mut(&key) {
                // The key stays in the map, also with no call left. So a call that comes now waits
                // for this lane, and makes the key ready for no other.
                let count = calls.len().min(MOST_TOGETHER - taken.len());
                taken.extend(calls.drain(..count));
                keys.push(key);
            }
        }
        self.waiting -= taken.len();
        taken
    }

    /// Lets other calls of these keys be taken.
    fn release(&mut self, keys: &mut Vec<u64>) {
        for key in keys.drain(..) {
            match self.keys.get(&key) {
                // Behind the other keys, so that one with many calls does not keep them waiting.
                Some(calls) if !calls.is_empty() => self.ready.push_back(key),
                _ => drop(self.keys.remove(&key)),
            }
        }
    }
}

impl<K: KeyValue> LaneWorker<K> {
    /// Decides what waits, until nothing does.
    async fn run(mut self) {
        loop {
            // Callers that were answered together ask again together.
            task::yield_now().await;
            let calls = self.next();
            if calls.is_empty() {
                return;
            }
            self.lanes.decide(calls).await;
            // Only now: another lane would read the values before this one has written them.
            self.lanes.queue.lock().release(&mut self.keys);
        }
    }

    fn next(&mut self) -> Vec<Box<dyn LaneCall>> {
        let mut queue = self.lanes.queue.lock();
        let calls = queue.take(&mut self.keys);
        if calls.is_empty() {
            self.is_free = true;
            queue.free += 1;
        }
        calls
    }
}

impl<K: KeyValue> Drop for LaneWorker<K> {
    /// Frees the lane of a task whose runtime has ended. The next caller starts another one.
    fn drop(&mut self) {
        if !self.is_free {
            let mut queue = self.lanes.queue.lock();
            queue.release(&mut self.keys);
            queue.free += 1;
        }
    }
}

impl<K: KeyValue> Lanes<K> {
    pub(super) fn new(
        backend: K,
        lanes: NonZeroUsize,
        deny_cache_cap: Duration,
        is_shared: bool,
    ) -> Arc<Self> {
        let queue = LaneQueue {
            keys: HashMap::default(),
            ready: VecDeque::new(),
            waiting: 0,
            free: lanes.get(),
        };
        // A probe has only the weak reference, so it does not keep a store that is dropped.
        Arc::new_cyclic(|me| Self {
            backend,
            health: Health::new(K::KIND, K::KIND.to_owned()),
            deny_cache: (!deny_cache_cap.is_zero()).then(|| DenyCache::new(deny_cache_cap)),
            presence: Presence::new(),
            is_shared,
            queue: Lock::new(queue),
            hasher: RandomState::default(),
            me: Weak::clone(me),
        })
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().waiting
    }

    /// Forgets remembered denials of a key, because units may have come back.
    pub(super) fn forget(&self, key: &Key) {
        if let Some(cache) = &self.deny_cache {
            cache.forget(key, &self.hasher);
        }
    }

    /// Returns the hash by which the calls of a key get their lane: that of the outermost level. Two
    /// users of a tenant have the states of the tenant in common, so their calls belong in one lane.
    pub(super) fn hash(&self, key: &Key) -> u64 {
        key.branch(0).level(1).hash(&self.hasher)
    }

    /// Waits until a call was decided, of the key with this [hash](Self::hash). `step` reads and
    /// changes the values of `names`, once for each try.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        hash: u64,
        names: Vec<Vec<u8>>,
        deadline: Option<Deadline>,
        step: impl FnMut(&mut Values, &[Vec<u8>], u64) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let runtime = runtime::current()?;
        let epoch = self.health.breaker.epoch();
        let attempt = Attempt::new(&**self, deadline);
        let (answer, answered) = oneshot::channel();
        let begins = {
            let mut queue = self.queue.lock();
            if queue.waiting >= MOST_WAITING {
                return Err(Error::new(
                    ErrorKind::Overloaded,
                    format!("{MOST_WAITING} calls wait for the store"),
                ));
            }
            let asked = PendingCall {
                names,
                deadline,
                step,
                decided: None,
                answer,
            };
            queue.push(hash, Box::new(asked));
            // Under the lock, so that two callers do not start the same lane. Without a key that is
            // ready, the lane that has the key of this call takes it later.
            let begins = queue.free > 0 && !queue.ready.is_empty();
            queue.free -= usize::from(begins);
            begins
        };
        if begins {
            let worker = LaneWorker {
                lanes: Arc::clone(self),
                keys: Vec::new(),
                is_free: false,
            };
            runtime.spawn(worker.run());
        }
        let lost = |_| {
            Err(Error::new(
                ErrorKind::ConnectionLost,
                "the runtime that asked the store was shut down",
            ))
        };
        let outcome = tokio::select! {
            biased;
            // First, because an answer that is here was charged.
            answer = answered => answer.unwrap_or_else(lost),
            () = self.health.until_opened_after(epoch) => Err(self.health.overtaken()),
        };
        // A call that ended because its deadline has come counts as late.
        if !matches!(&outcome, Err(error) if error.kind() == ErrorKind::Timeout) {
            attempt.end(outcome.is_ok());
        }
        outcome
    }

    /// Decides calls, again and again while others change what was read.
    async fn decide(&self, mut calls: Vec<Box<dyn LaneCall>>) {
        for _ in 0..MOST_TRIES {
            // Before each try, because callers leave and deadlines pass meanwhile. What nobody
            // waits for must not be charged.
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
                Ok(decided) => {
                    self.health.heard();
                    for (call, is_decided) in mem::take(&mut calls).into_iter().zip(decided) {
                        match is_decided {
                            true => call.answer(Ok(())),
                            false => calls.push(call),
                        }
                    }
                    if calls.is_empty() {
                        return;
                    }
                    // A backend that answers at once would keep the other tasks of this thread
                    // waiting.
                    task::yield_now().await;
                }
                Err(error) => {
                    match &error {
                        error if is_away(error.kind()) => self.failed(error),
                        error if is_answer(error.kind()) => self.health.heard(),
                        _ => {}
                    }
                    // What failed may have been written, so it is not decided again.
                    return calls
                        .into_iter()
                        .for_each(|call| call.answer(Err(error.clone())));
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

    /// Decides calls on what is stored now. Returns of each whether that stands: others may have
    /// changed its values before they were written.
    async fn try_once(&self, calls: &mut [Box<dyn LaneCall>]) -> Result<Vec<bool>, Error> {
        let mut names: Vec<Vec<u8>> = calls
            .iter()
            .flat_map(|call| call.names())
            .cloned()
            .collect();
        // Sorted, so that backends take their locks in one order. Each name once, because calls on
        // the same value see what the others before them changed.
        names.sort_unstable();
        names.dedup();
        let read = self.backend.read(&names).await?;
        // Others write backends. Values that are shifted by one would be charged to other keys.
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
        let (changes, of_calls) = values.into_changes(calls.iter().map(|call| call.names()));
        let written = match changes.is_empty() {
            true => Vec::new(),
            false => self.backend.write(read.read, changes).await?,
        };
        let stands =
            |change: &Option<usize>| change.is_none_or(|at| written.get(at) == Some(&true));
        Ok(of_calls.iter().map(stands).collect())
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

trait LaneCall: Send {
    fn names(&self) -> &[Vec<u8>];
    fn deadline(&self) -> Option<Deadline>;

    /// Returns whether nobody waits for the answer.
    fn is_dropped(&self) -> bool;
    fn decide(&mut self, values: &mut Values, now_us: u64);

    /// Answers with what was decided last.
    fn answer(self: Box<Self>, outcome: Result<(), Error>);
}

struct PendingCall<T, F> {
    names: Vec<Vec<u8>>,
    deadline: Option<Deadline>,
    step: F,
    decided: Option<T>,
    answer: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> LaneCall for PendingCall<T, F>
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
