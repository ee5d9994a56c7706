//! The tokio runtime that a call to a store outside this process needs, its time, and its background
//! tasks.
//! Clocks by which stores decide are in `clock.rs`; the timer of their calls is in `store/timer/mod.rs`.

mod background;
mod sync;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    panic::catch_unwind,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::runtime::{Handle, Id};

pub use background::{Background, Running};

use crate::{Error, ErrorKind};

thread_local! {
    /// The runtime that this thread asked for last, and whether it has timers.
    static TIMED: Cell<Option<(Id, bool)>> = const { Cell::new(None) };
}

/// Returns the runtime of the caller.
///
/// # Errors
///
/// [`ErrorKind::NoRuntime`] outside a runtime, and in one without timers, where tokio's own
/// functions would panic.
pub fn current() -> Result<Handle, Error> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(Error::new(
            ErrorKind::NoRuntime,
            "there is no tokio runtime in this thread, and the call may have to wait: await it inside a tokio runtime, or use \
             Limiter::block_on",
        ));
    };
    match has_timers(runtime.id()) {
        true => Ok(runtime),
        false => Err(Error::new(
            ErrorKind::NoRuntime,
            "the tokio runtime of this thread has no timers, and the call may have to wait: build it with enable_time or \
             enable_all",
        )),
    }
}

/// Returns whether the runtime of the caller, which is this one, has timers.
///
/// Tokio does not say so, and panics where a timer is made without them. So one is made, once for
/// each runtime and thread.
fn has_timers(runtime: Id) -> bool {
    match TIMED.get() {
        Some((asked, has_timers)) if asked == runtime => has_timers,
        _ => {
            let has_timers = catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok();
            TIMED.set(Some((runtime, has_timers)));
            has_timers
        }
    }
}

/// Returns tokio's time, as the start of a [`Deadline`](crate::store::Deadline) does. Tests may
/// stop it.
#[inline]
#[must_use]
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time by the clock that other processes have too.
#[must_use]
pub fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
