//! Four processes that are busy with twenty permits, and learn that there are eight.

use std::{process::Command, time::Duration};

use tollgate_tests::{Process, RedisServer, wait};

use super::{
    held::held_by_all,
    journal::{Span, begun_above, now_us},
    worker::{Worker, at_work, count, spans_of},
};
use crate::PATIENCE;

/// The permits at first.
const BEFORE: usize = 20;

/// The permits after the limit was lowered.
const AFTER: usize = 8;

/// Each of the processes has more tasks than its share of the permits, so that callers wait for
/// every permit.
const TASKS: usize = BEFORE / 4 + 3;

/// The steps of a piece of work.
const STEPS: u32 = 6;

/// The pieces of work that have to begin before the limit is lowered, and again once it is kept to.
const BUSY: usize = 100;

/// Starts the processes, lowers the limit under load, and waits until it is kept to and the work goes
/// on. Returns how many pieces of work begin after that while as many as the limit are in progress.
///
/// Each command has to call [`run_permit_worker`](super::run_permit_worker) with the URL of the
/// server.
///
/// # Panics
///
/// When the limit is not kept to, or no work begins under it.
#[must_use]
pub fn begun_above_a_lowered_limit(
    server: &RedisServer,
    program: impl Fn() -> Command,
    life: Duration,
    is_exact: bool,
) -> usize {
    let worker = Worker {
        limit: BEFORE,
        life,
        is_exact,
        tasks: TASKS,
        steps: Some(STEPS),
    };
    let mut processes = [(); 4].map(|()| worker.start(program()));
    let begun = |processes: &[Process]| -> usize {
        processes.iter().map(|one| count(one, "work begins ")).sum()
    };
    wait::until("all permits to be in use", PATIENCE, || {
        begun(&processes) > BUSY && processes.iter().map(at_work).sum::<usize>() > AFTER
    });
    for process in &mut processes {
        process.tell(&AFTER.to_string());
    }
    wait::until("every task to ask under the lower limit", PATIENCE, || {
        processes
            .iter()
            .all(|process| count(process, "limit ") == TASKS)
    });
    // As the server sees it, because the lines of a process may arrive late here. Work ends
    // before its permit is given back.
    wait::until("the limit to be kept to", PATIENCE, || {
        held_by_all(server) as usize <= AFTER
    });
    let (kept_us, until_then) = (now_us(), begun(&processes));
    wait::until("work to go on", PATIENCE, || {
        begun(&processes) > until_then + BUSY
    });
    let end_us = now_us();
    let mut spans: Vec<Span> = Vec::new();
    for process in &mut processes {
        process.kill();
        spans.extend(spans_of(&process.output(), end_us));
    }
    begun_above(&spans, AFTER)
        .filter(|&from_us| from_us > kept_us)
        .count()
}
