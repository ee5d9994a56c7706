//! Callers that wait in this process. They come to the front of their queue in the order of
//! arrival.
//! It knows no quota and no store: `wait/queue.rs` and `permits/` let their callers wait in it.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, timeout_at},
};

/// Counts the callers that wait in all queues of a limiter together.
#[derive(Debug)]
pub(crate) struct Callers {
    callers: AtomicUsize,
    most: usize,
}

/// A caller that waits. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Caller<'a>(&'a Callers);

impl Callers {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            callers: AtomicUsize::new(0),
            most,
        }
    }

    pub(crate) fn callers(&self) -> usize {
        self.callers.load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.callers() >= self.most
    }

    /// Counts a caller, however many wait.
    pub(crate) fn count(&self) -> Caller<'_> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        Caller(self)
    }

    /// Counts a caller, unless the most wait.
    pub(crate) fn join(&self) -> Option<Caller<'_>> {
        let add = |callers: usize| (callers < self.most).then_some(callers + 1);
        self.callers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()
            .map(|_| Caller(self))
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A queue. Its first caller holds the front, which tokio's mutex passes on in the order of
/// arrival.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    front: Mutex<()>,
    callers: AtomicUsize,
}

impl Fifo {
    pub(crate) fn callers(&self) -> usize {
        self.callers.load(Ordering::Relaxed)
    }

    pub(crate) fn join(&self) {
        self.callers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a caller that has left. Returns whether it was the last one.
    pub(crate) fn leave(&self) -> bool {
        self.callers.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Waits for the front until `end`.
    pub(crate) async fn front(&self, end: Option<Instant>) -> Option<MutexGuard<'_, ()>> {
        until(end, self.front.lock()).await
    }
}

/// Waits until `end`, or as long as the future takes when the end is later than an [`Instant`] can
/// be.
pub(crate) async fn until<T>(end: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => timeout_at(end, future).await.ok(),
        None => Some(future.await),
    }
}
