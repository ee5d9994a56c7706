//! Tasks that run in the background while they are needed. The atomics come from `runtime::sync`,
//! so that a model checker runs the same lines.
//! What each task does is in the file that starts it.

use std::{future::Future, sync::Arc};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    current,
    sync::{AtomicU32, Ordering},
};

/// Starts a background task when it is needed, and wakes it.
///
/// A task has duties, and each is a bit. Callers ask for a duty, and it remains until the task
/// takes it. There is never more than one task. When the runtime of the task was shut down, its
/// duties remain, and the next caller starts another task.
///
/// When this is dropped, the task is woken, so that it can end.
#[derive(Debug)]
pub struct Background(Arc<TaskWord>);

/// The end of a [`Background`] that the task holds. The task runs until it is dropped.
#[derive(Debug)]
pub struct Running {
    task: Arc<TaskWord>,
    is_over: bool,
}

#[derive(Debug)]
struct TaskWord {
    /// The duties that are asked for, and [`RUNS`].
    word: AtomicU32,
    wake: Notify,
}

/// The bit of a task that runs.
const RUNS: u32 = 1 << 31;

impl Default for Background {
    fn default() -> Self {
        Self::new()
    }
}

impl Background {
    /// Creates a task that does not run yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(TaskWord {
            word: AtomicU32::new(0),
            wake: Notify::new(),
        }))
    }

    /// Returns whether these duties are asked for, and a task runs if any is. Otherwise a caller
    /// has to [ask](Self::ask) and to [start](Self::start) the task.
    #[inline]
    #[must_use]
    pub fn has(&self, duties: u32) -> bool {
        let word = self.0.word.load(Ordering::Relaxed);
        word & duties == duties && (word & RUNS != 0 || word == 0)
    }

    /// Asks for duties, and wakes the task.
    pub fn ask(&self, duties: u32) {
        if self.0.word.fetch_or(duties, Ordering::AcqRel) & RUNS != 0 {
            self.wake();
        }
    }

    /// Wakes the task.
    #[inline]
    pub fn wake(&self) {
        self.0.wake.notify_one();
    }

    /// Starts the task on the runtime of the caller, if it has duties and does not run. Returns
    /// `false` when none runs, because the caller has no runtime with timers.
    pub fn start<F>(&self, task: impl FnOnce(Running) -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.0.word.load(Ordering::Acquire) & RUNS != 0 {
            return true;
        }
        let Ok(runtime) = current() else { return false };
        if let Some(running) = self.begin() {
            runtime.spawn(task(running));
        }
        true
    }

    /// Becomes the task, if it has duties and does not run.
    #[must_use]
    pub fn begin(&self) -> Option<Running> {
        let begin = |word: u32| (word != 0 && word & RUNS == 0).then_some(word | RUNS);
        let begun = self
            .0
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, begin);
        begun.is_ok().then(|| Running {
            task: Arc::clone(&self.0),
            is_over: false,
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.wake();
    }
}

impl Running {
    /// Returns whether any of these duties is asked for.
    #[must_use]
    pub fn is_asked(&self, duties: u32) -> bool {
        self.task.word.load(Ordering::Acquire) & duties != 0
    }

    /// Takes duties. Returns whether any of them was asked for.
    #[allow(
        clippy::must_use_candidate,
        reason = "a task that does its duty anyway needs no answer"
    )]
    pub fn take(&self, duties: u32) -> bool {
        self.task.word.fetch_and(!duties, Ordering::AcqRel) & duties != 0
    }

    /// Takes a duty, unless it is needed still. `is_needed` looks after the duty was taken, so
    /// that no caller is overlooked that asks meanwhile.
    pub fn finish(&self, duty: u32, is_needed: impl FnOnce() -> bool) -> bool {
        self.take(duty);
        let is_needed = is_needed();
        if is_needed {
            self.task.word.fetch_or(duty, Ordering::AcqRel);
        }
        is_needed
    }

    /// Ends the task. Returns `false` when a duty is asked for: the task then has to go on.
    pub fn end(&mut self) -> bool {
        self.is_over = self
            .task
            .word
            .compare_exchange(RUNS, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        self.is_over
    }

    /// Ends the task whatever is asked for: the next caller starts another one.
    pub fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.task.word.fetch_and(!RUNS, Ordering::AcqRel);
        }
    }

    /// Returns whether the task has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits until a duty is asked for, or the task is woken.
    pub async fn woken(&self) {
        self.task.wake.notified().await;
    }

    /// Waits until any of these duties is asked for.
    pub async fn until_asked(&self, duties: u32) {
        while !self.is_asked(duties) {
            self.woken().await;
        }
    }

    /// Waits until this time, or until the task is woken.
    pub async fn rest(&self, until: Instant) {
        let _ = timeout_at(until, self.woken()).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
