//! The tokio runtime that a call to a store outside this process needs.

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
