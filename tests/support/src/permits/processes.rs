//! Three processes that share four permits. The first one works with half of them.

use std::{process::Command, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tollgate_tests::{Process, wait};

use super::{
    journal::{Span, now_us},
    worker::{Worker, at_work, count, spans_of},
};
use crate::PATIENCE;

/// The permits that the processes share.
pub const AT_ONCE: usize = 4;

/// Three processes that share [`AT_ONCE`] permits and cancel their work when they lose them. The
/// first one works with half of the permits, and the others work with the rest and ask for more.
///
/// Dropping the value kills the processes.
#[derive(Debug)]
pub struct SharedPermits {
    processes: [Process; 3],
    killed_us: [Option<u64>; 3],
}

impl SharedPermits {
    /// Starts the processes, and waits until all permits are in use.
    ///
    /// Each command has to call [`run_permit_worker`](super::run_permit_worker) with the URL of the
    /// server.
    ///
    /// # Panics
    ///
    /// When a process does not start.
    #[must_use]
    pub fn start(program: impl Fn() -> Command, life: Duration, is_exact: bool) -> Self {
        let start = |tasks: usize| {
            Worker {
                limit: AT_ONCE,
                life,
                is_exact,
                tasks,
                steps: None,
            }
            .start(program())
        };
        let first = start(AT_ONCE / 2);
        wait::until(
            "the first process to work with half of the permits",
            PATIENCE,
            || at_work(&first) >= AT_ONCE / 2,
        );
        let this = Self {
            processes: [first, start(AT_ONCE), start(AT_ONCE)],
            killed_us: [None; 3],
        };
        wait::until("the others to work with the rest", PATIENCE, || {
            this.others_at_work() >= AT_ONCE / 2
        });
        this
    }

    /// Kills the first process.
    pub fn kill_first(&mut self) {
        self.killed_us[0] = Some(now_us());
        self.processes[0].kill();
    }

    /// Stops the first process.
    ///
    /// # Panics
    ///
    /// When the process has ended.
    pub fn stop_first(&self) {
        self.signal_first(Signal::STOP);
    }

    /// Lets the first process go on.
    ///
    /// # Panics
    ///
    /// When the process has ended.
    pub fn resume_first(&self) {
        self.signal_first(Signal::CONT);
    }

    fn signal_first(&self, signal: Signal) {
        let pid = i32::try_from(self.processes[0].pid())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process number");
        kill_process(pid, signal).expect("the process runs");
    }

    /// Returns how many pieces of work each process has in progress. The output of the processes
    /// may lag behind.
    #[must_use]
    pub fn at_work(&self) -> [usize; 3] {
        self.processes.each_ref().map(at_work)
    }

    /// Returns how many pieces of work the second and the third process have in progress.
    #[must_use]
    pub fn others_at_work(&self) -> usize {
        self.at_work()[1..].iter().sum()
    }

    /// Returns how many pieces of work each process has cancelled.
    #[must_use]
    pub fn cancelled(&self) -> [usize; 3] {
        self.processes
            .each_ref()
            .map(|process| count(process, "work ends "))
    }

    /// Kills all processes, and returns their work.
    ///
    /// # Panics
    ///
    /// When a process has printed something else than its work.
    #[must_use]
    pub fn end(mut self) -> Vec<Span> {
        let end_us = now_us();
        let mut spans = Vec::new();
        for (process, killed_us) in self.processes.iter_mut().zip(self.killed_us) {
            process.kill();
            spans.extend(spans_of(&process.output(), killed_us.unwrap_or(end_us)));
        }
        spans
    }
}
