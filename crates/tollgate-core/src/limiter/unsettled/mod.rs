//! Commits that did not reach the store, and the task that repeats them. What a commit is stands in
//! `reservation.rs`.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;

use super::LimiterInner;
use crate::{
    Error, ErrorKind,
    lock::Lock,
    runtime::{Background, Running},
    store::{Check, KeptCheck, ReservationId, Settlement},
};

/// Keeps the commits of a limiter that did not reach the store, until it answers or their
/// reservations lapse. Their number is bounded, and so is their memory: no key has more than a
/// kilobyte.
///
/// It is created with the first such commit: a service may have a limiter for each of its tenants.
#[derive(Default)]
pub(super) struct Unsettled(OnceLock<Box<Repeats>>);

struct Repeats {
    queue: Lock<CommitQueue>,
    task: Background,
}

#[derive(Default)]
struct CommitQueue {
    /// The commit that is sent next stands first.
    commits: VecDeque<Arc<Unsent>>,
    /// The commits that were given up for want of room, since the queue was empty.
    given_up: u64,
}

struct Unsent {
    check: KeptCheck,
    id: ReservationId,
    lapses: Instant,
}

/// The duty of the task: to repeat commits.
const REPEAT: u32 = 1;

/// The most commits that wait.
const MOST_COMMITS: usize = 4_096;

/// The pause before commits are sent again. It doubles while the store answers none.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// The failures in a row that end a round. One server of a cluster may be away, so the first
/// failure is no sign for the rest.
const MISSES: usize = 8;

/// Returns whether a commit that failed with this error is repeated. Other errors are mistakes of
/// the caller, or of one key, which no later call mends.
pub(super) fn is_repeated(error: &Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::Config
            | ErrorKind::CostExceedsBurst
            | ErrorKind::CrossSlot
            | ErrorKind::KeyLevels
            | ErrorKind::NoRuntime
            | ErrorKind::Unsupported
            | ErrorKind::WrongType
    )
}

impl Unsettled {
    /// Repeats a commit in the background until `lapses`. Of several commits of one reservation the
    /// first one is kept, because only that counts.
    pub(super) fn add(
        &self,
        limiter: &Arc<LimiterInner>,
        check: Check<'_>,
        id: &ReservationId,
        lapses: Instant,
    ) {
        let new = || {
            Box::new(Repeats {
                queue: Lock::default(),
                task: Background::new(),
            })
        };
        let repeats = self.0.get_or_init(new);
        let is_full = repeats.queue.lock().add(check, id, lapses);
        if is_full {
            tracing::warn!(
                limiter = limiter.fallback.name(),
                "too many commits wait for the rate limit store: the oldest are given up, and their estimates stay charged"
            );
        }
        if !repeats.task.has(REPEAT) {
            repeats.task.ask(REPEAT);
            self.resume(limiter);
        }
    }

    /// Starts the task on the runtime of the caller if commits wait and none runs, because its
    /// runtime was shut down. Without a runtime, a later commit starts it.
    #[inline]
    pub(super) fn resume(&self, limiter: &Arc<LimiterInner>) {
        if let Some(repeats) = self.0.get()
            && !repeats.task.has(0)
        {
            let start = |running| repeat(Arc::clone(limiter), running);
            repeats.task.start(start);
        }
    }
}

impl Repeats {
    /// Sends each commit once, until several in a row have failed. Returns whether the store
    /// answered any.
    async fn send_all(&self, limiter: &LimiterInner) -> bool {
        let (mut left, mut misses) = (self.queue.lock().commits.len(), 0);
        let mut has_answered = false;
        while left > 0 && misses < MISSES {
            let Some(unsent) = self.queue.lock().commits.front().cloned() else {
                break;
            };
            left -= 1;
            let is_over = match unsent.send(limiter).await {
                Ok(settlement) => {
                    limiter.fallback.committed(Some(&settlement));
                    (misses, has_answered) = (0, true);
                    true
                }
                Err(error) if is_repeated(&error) => {
                    misses += 1;
                    false
                }
                Err(error) => {
                    tracing::debug!(%error, "a commit is not repeated, the estimate stays charged");
                    true
                }
            };
            let given_up = self.queue.lock().tried(&unsent, is_over);
            if given_up > 0 {
                tracing::warn!(
                    limiter = limiter.fallback.name(),
                    given_up,
                    "no commit waits for the rate limit store any more"
                );
            }
        }
        has_answered
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().commits.is_empty()
    }
}

/// Repeats commits until none waits.
async fn repeat(limiter: Arc<LimiterInner>, mut running: Running) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        running.rest(Instant::now() + pause).await;
        let Some(repeats) = limiter.unsettled.0.get() else {
            return;
        };
        pause = match repeats.send_all(&limiter).await {
            true => SHORTEST_PAUSE,
            false => LONGEST_PAUSE.min(pause * 2),
        };
        let is_needed = running.finish(REPEAT, || !repeats.is_empty());
        if !is_needed && running.end() {
            return;
        }
    }
}

impl CommitQueue {
    /// Adds a commit, and gives up the oldest one if too many wait. Returns whether that is the
    /// first.
    fn add(&mut self, check: Check<'_>, id: &ReservationId, lapses: Instant) -> bool {
        if self.commits.iter().any(|unsent| unsent.is_of(check, id)) {
            return false;
        }
        let unsent = Arc::new(Unsent {
            check: check.keep(),
            id: id.clone(),
            lapses,
        });
        self.commits.push_back(unsent);
        let is_full = self.commits.len() > MOST_COMMITS;
        if is_full {
            self.commits.pop_front();
            self.given_up += 1;
        }
        is_full && self.given_up == 1
    }

    /// Removes a commit that was sent, or lets the others come first. When none is left, returns how
    /// many were given up.
    fn tried(&mut self, unsent: &Arc<Unsent>, is_over: bool) -> u64 {
        let at = self
            .commits
            .iter()
            .position(|held| Arc::ptr_eq(held, unsent));
        let sent = at.and_then(|at| self.commits.remove(at));
        self.commits.extend(sent.filter(|_| !is_over));
        match self.commits.is_empty() {
            true => std::mem::take(&mut self.given_up),
            false => 0,
        }
    }
}

impl Unsent {
    /// Sends the commit once more, with the same number, unless the reservation has lapsed.
    async fn send(&self, limiter: &LimiterInner) -> Result<Settlement, Error> {
        if self.lapses <= Instant::now() {
            return Ok(Settlement::Lapsed);
        }
        let check = self.check.check();
        let call = limiter.call(check, |check| limiter.store.commit(check, &self.id));
        match call.await? {
            // The reservation may have been made in an outage.
            Settlement::Lapsed => {
                let local = limiter.fallback.commit(check, &self.id);
                Ok(local.unwrap_or(Settlement::Lapsed))
            }
            settlement => Ok(settlement),
        }
    }

    fn is_of(&self, check: Check<'_>, id: &ReservationId) -> bool {
        let own = self.check.check();
        self.id == *id && own.key == check.key && own.policies == check.policies
    }
}

#[cfg(test)]
mod tests;
