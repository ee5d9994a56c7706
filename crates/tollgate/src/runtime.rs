//! The tokio runtime that a call to a store outside this process needs, and its time.

use std::time::Instant;

use tokio::runtime::Handle;

use crate::{Error, ErrorKind};

/// Returns the runtime of the caller.
///
/// # Errors
///
/// [`ErrorKind::NoRuntime`] outside a runtime, where tokio's own functions would panic.
pub(crate) fn current() -> Result<Handle, Error> {
    Handle::try_current().map_err(|_| {
        Error::new(
            ErrorKind::NoRuntime,
            "there is no tokio runtime in this thread, and the call may have to wait: await it inside a tokio runtime, or use \
             Limiter::blocking",
        )
    })
}

/// Returns tokio's time, as the start of a [`Deadline`](crate::Deadline) does. Tests may stop it.
#[inline]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
