//! Calls from threads without a runtime, which one thread of the process drives.
//! Code that can await needs nothing of this file.

use std::{
    future::{Future, IntoFuture, pending},
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
};

use tokio::runtime::{Builder, Handle};

use super::Limiter;
use crate::{Error, ErrorKind, lock::Lock};

impl Limiter {
    /// Runs a call to its end in a thread without a tokio runtime, and waits in the thread.
    ///
    /// The call is anything that async code awaits: a check, a wait, a peek, a reservation and its
    /// commit, a refund.
    ///
    /// One thread named `tollgate-blocking`, with a tokio runtime of its own, drives the
    /// connections and the deadlines. The first call starts it, for the whole process. A call ends
    /// at the deadline of the limiter, as in async code, and the [`Outage`](crate::Outage) decides
    /// then. Calls from async code and from threads share the connection and the counters of a
    /// store.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, reservation::Settlement};
    ///
    /// let mails = Limiter::new(MemoryStore::new(), Policy::leaky_bucket("mails", Quota::per_second(100)));
    /// let worker = std::thread::spawn({
    ///     let mails = mails.clone();
    ///     move || mails.block_on(mails.check("smtp"))
    /// });
    /// assert!(worker.join().unwrap()?.is_allowed());
    /// // The next mail leaves 10 ms later.
    /// assert!(mails.block_on(mails.check("smtp").wait(Duration::from_secs(1)))?.is_allowed());
    ///
    /// let rows = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(1_000)));
    /// let reservation = rows.block_on(rows.reserve("acme", Cost::new(100)))?;
    /// assert_eq!(rows.block_on(reservation.commit(Cost::new(40)))?, Settlement::Settled);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of the call, and [`ErrorKind::Unavailable`] when the thread that drives the
    /// connections cannot be started.
    ///
    /// # Panics
    ///
    /// A call that has to wait panics in an async task, with tokio's message *Cannot start a
    /// runtime from within a runtime*, before anything is sent: a wait there would stop the other
    /// tasks of the thread. Await the call instead. Inside `tokio::task::spawn_blocking`,
    /// `block_on` works. A store in the process has nothing to wait for, so its checks work
    /// everywhere.
    pub fn block_on<T>(
        &self,
        call: impl IntoFuture<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let runtime = runtime()?;
        let mut call = pin!(call.into_future());
        if self.is_in_process() {
            // A store in the process mostly answers at the first poll, so that the thread has
            // nothing to wait for.
            let _entered = runtime.enter();
            if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                return answer;
            }
        }
        runtime.block_on(call)
    }
}

/// Returns the runtime that all blocking calls of the process share. It never ends, so a connection
/// that was made for a blocking call outlives every other runtime. A handle of the application's
/// runtime would hang when nothing drives that runtime while the thread waits.
fn runtime() -> Result<Handle, Error> {
    static RUNTIME: Lock<Option<Handle>> = Lock::new(None);
    let mut runtime = RUNTIME.lock();
    if let Some(runtime) = &*runtime {
        return Ok(runtime.clone());
    }
    let started = start().map_err(|error| {
        Error::new(
            ErrorKind::Unavailable,
            format!("the thread for blocking calls cannot be started: {error}"),
        )
    })?;
    Ok(runtime.insert(started).clone())
}

/// Starts a thread that drives a runtime.
fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("tollgate-blocking".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}
