//! A timer for tasks in any runtime.
//!
//! The timer of tokio panics in a runtime that was built without `enable_time`, and no call asks a runtime whether it has one.
//! A server without timers must not fail because it rejects a request. So a thread of its own drives the timer.

use std::{
    future::pending,
    sync::{LazyLock, mpsc},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    time::{Sleep, sleep as sleep_in_current},
};

/// The runtime that only has timers. `None` when its thread cannot be started.
static TIMERS: LazyLock<Option<Handle>> = LazyLock::new(start);

/// Returns a future that any runtime can poll. The first call starts the thread of the timers, for the whole process.
pub(super) fn sleep(duration: Duration) -> Option<Sleep> {
    let _entered = TIMERS.as_ref()?.enter();
    Some(sleep_in_current(duration))
}

fn start() -> Option<Handle> {
    let (sender, receiver) = mpsc::sync_channel(1);
    // Built in the thread: a runtime panics when it is dropped in a task.
    let run = move || {
        if let Ok(runtime) = Builder::new_current_thread().enable_time().build()
            && sender.send(runtime.handle().clone()).is_ok()
        {
            runtime.block_on(pending::<()>());
        }
    };
    thread::Builder::new().name("tollgate-timer".to_owned()).spawn(run).ok()?;
    receiver.recv().ok()
}
