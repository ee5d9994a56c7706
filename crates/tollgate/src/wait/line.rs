//! Who waits in this process, and in which order.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::time::Instant;

use crate::{Algorithm, Decision, Key};

/// Who waits in this process: a line for each key that is waited for.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<Key, Line>>,
    /// In all lines together.
    pub(super) waiting: AtomicUsize,
    max_waiting: usize,
}

#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: usize,
    /// Held by whoever is first; handed on in the order of asking.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// What the first was told.
    denied: Option<Denied>,
}

/// A denial, and when to ask again.
#[derive(Clone, Debug)]
pub(super) struct Denied {
    pub(super) decision: Decision,
    pub(super) ready_at: Instant,
}

impl Denied {
    /// The earliest turn of one who has this many before it: each of them spends a unit at least.
    fn turn_behind(&self, ahead: usize) -> Instant {
        let Some(state) = self.decision.binding() else { return self.ready_at };
        let (quota, ahead) = (state.policy().quota(), u32::try_from(ahead).unwrap_or(u32::MAX));
        let wait = match state.policy().algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.period().saturating_mul(ahead) / quota.amount(),
            // The others may give back all at once.
            _ => quota.period().saturating_mul(ahead / quota.amount()),
        };
        self.ready_at.checked_add(wait).unwrap_or(self.ready_at)
    }
}

/// A place in a line.
pub(super) struct Standing<'a> {
    lines: &'a Lines,
    key: &'a Key,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Lines {
    pub(crate) fn new(max_waiting: usize) -> Self {
        Self { lines: Mutex::default(), waiting: AtomicUsize::new(0), max_waiting }
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 && self.lock().contains_key(key)
    }

    /// A place at the end of the line; or what the first was told, when there is no room, or the
    /// turn would come after the deadline.
    pub(super) fn join<'a>(
        &'a self,
        key: &'a Key,
        deadline: Option<Instant>,
    ) -> Result<Standing<'a>, Option<Box<Denied>>> {
        let mut lines = self.lock();
        let line = lines.get(key);
        let told = line.and_then(|line| line.denied.as_ref());
        let is_hopeless = |line: &Line, told: &Denied| deadline.is_some_and(|at| told.turn_behind(line.waiting) > at);
        if self.waiting.load(Ordering::Relaxed) >= self.max_waiting
            || line.zip(told).is_some_and(|(line, told)| is_hopeless(line, told))
        {
            return Err(told.cloned().map(Box::new));
        }
        let line = lines.entry(key.clone()).or_default();
        line.waiting += 1;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Standing { lines: self, key, turn: Arc::clone(&line.turn) })
    }

    /// A panic while the lock is held leaves whole lines behind, so the lock is never poisoned.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Key, Line>> {
        self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Standing<'_> {
    /// Lets those behind know what the first was told.
    pub(super) fn tell(&self, denied: Denied) {
        if let Some(line) = self.lines.lock().get_mut(self.key) {
            line.denied = Some(denied);
        }
    }

    pub(super) fn told(&self) -> Option<Denied> {
        self.lines.lock().get(self.key).and_then(|line| line.denied.clone())
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        self.lines.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(line) = lines.get_mut(self.key) {
            line.waiting -= 1;
            if line.waiting == 0 {
                lines.remove(self.key);
            }
        }
    }
}
