//! Calls of a store that go on after the request: refunds, late charges, commits.
//! What is refunded, and how much, is decided by each layer.

use std::{
    future::Future,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Waker},
};

use tokio::runtime::Handle;

/// Runs a call of a store to its end, although nobody waits for it: a refund, or a late charge.
///
/// The call is polled at once, so that the store receives it before any later check of this process.
/// A call that is pending then goes on in a task of the tokio runtime of the caller. Outside of a
/// runtime it is lost, and the first one is logged at `warn`. `is_in_process` is
/// [`Limiter::is_in_process`](tollgate_core::Limiter::is_in_process): such a call ends at once, and needs
/// no runtime.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::gate::in_background;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("all", Quota::per_day(1)));
/// let charged = limiter.clone();
/// in_background(limiter.is_in_process(), async move {
///     let _ = charged.check("acme").await;
/// });
/// assert!(limiter.check("acme").await?.is_denied());
/// # Ok(()) }
/// ```
pub fn in_background(is_in_process: bool, call: impl Future<Output = ()> + Send + 'static) {
    let mut context = Context::from_waker(Waker::noop());
    if is_in_process {
        // A store in the process finishes at the first poll, so there is no task to spawn.
        let _ = pin!(call).poll(&mut context);
    } else if let Ok(runtime) = Handle::try_current() {
        // Polled at once, so that the store receives the call before any later check of this
        // process.
        let mut call = Box::pin(call);
        if call.as_mut().poll(&mut context).is_pending() {
            runtime.spawn(call);
        }
    } else {
        // The mistake is the same for every request, so it is logged once.
        static HAS_LOGGED: AtomicBool = AtomicBool::new(false);
        if !HAS_LOGGED.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a refund, a charge or a commit failed: the request or its body was dropped outside of the tokio runtime"
            );
        }
    }
}
