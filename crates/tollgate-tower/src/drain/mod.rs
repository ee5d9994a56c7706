//! Reads the rest of request bodies that nobody else reads.
//!
//! A request may be answered before its body was read: by a limit, by an interceptor, by a handler that refuses. A server
//! has to end such a body, and this costs more than the answer. Over HTTP/1.1 it closes the connection, on which a proxy may
//! have sent its next request already. Over HTTP/2 it resets the stream. Clients that are still sending then report the reset
//! and not the response (curl, httpx), and h2 (from 0.4.16 on) charges each frame of less than 256 bytes that still arrives to a
//! budget of the connection, and never gives it back. When the budget is spent, the connection ends with `ENHANCE_YOUR_CALM`, and all its calls fail.
//!
//! The layers of this crate read the rest of what they reject themselves, for the bodies of axum and tonic. A
//! [`DrainLayer`] does it for everything inside of it, and for every type of body.
//!
//! The response never waits for the body. The rest is read and thrown away: up to 16 MiB, for up to two seconds, and 4096
//! late bodies at the same time in a process. Nothing of it is kept: a body that is held unread takes the window of its connection
//! from all other requests on it, and its client may read nothing before it has sent everything. A client that stops when it has the response is not
//! asked for more. After that the body is dropped, and the server ends it as above. So it does at once with a body that the
//! client holds back with `Expect: 100-continue`, and outside of a tokio runtime.
//!
//! # The runtime needs its timers
//!
//! `enable_time` and `enable_all` start them, and so does `#[tokio::main]`. tokio does not say whether a runtime has
//! timers, and its `sleep` panics in one that has none. There a late body is read in a task that panics at its start:
//!
//! - tokio catches the panic. The body is dropped, and the server ends it as above; nothing else fails. The panic hook prints
//!   a message for each late body.
//! - In a program that is compiled with `panic = "abort"` the first late body ends the process.
//!
//! A body that has arrived with its request needs no timer.

mod layer;

use std::{
    any::Any,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Buf;
use http::{HeaderMap, header::EXPECT, request::Parts};
use http_body::Body;
use tokio::{runtime::Handle, time::sleep};

pub use self::layer::DrainLayer;
pub use layer::{Drain, DrainBody};

/// The number of bytes that are read at most. What is read is not kept, so that the window of the connection is not taken from
/// its other streams.
const MAX_LENGTH: u64 = 16 * 1024 * 1024;

/// The longest time for which a body is read.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Limits the bodies that are read at the same time in this process, because each takes some memory.
static PLACES: Places = Places::new(4096);

/// Takes the body of a rejected request, and reads it to its end.
///
/// It reads the bodies of axum and tonic. It drops a body of another type, which need not be [`Send`].
#[inline]
#[cfg_attr(not(any(feature = "axum", feature = "tonic")), allow(unused_variables, reason = "no body is recognised"))]
pub(crate) fn discard<B: 'static>(head: &Parts, body: B) {
    // The types are known to the compiler, so nothing of this is left at run time.
    let mut body = Some(body);
    let body: &mut dyn Any = &mut body;
    #[cfg(feature = "axum")]
    if let Some(body) = body.downcast_mut::<Option<axum::body::Body>>().and_then(Option::take) {
        read(is_held_back(&head.headers), body, &PLACES);
    }
    #[cfg(feature = "tonic")]
    if let Some(body) = body.downcast_mut::<Option<tonic::body::Body>>().and_then(Option::take) {
        read(is_held_back(&head.headers), body, &PLACES);
    }
}

/// Returns whether the client sends the body only when the server reads it.
fn is_held_back(headers: &HeaderMap) -> bool {
    headers.contains_key(EXPECT)
}

/// Reads what is there of a body at once, and the rest in a task.
fn read<B: Body + Send + Unpin + 'static>(is_held_back: bool, body: B, places: &'static Places) {
    if is_held_back || body.is_end_stream() {
        return;
    }
    let Ok(runtime) = Handle::try_current() else { return };
    let mut rest = Rest::new(body, MAX_LENGTH);
    // Most often the body is there, so there is no task to spawn.
    if rest.poll_end(&mut Context::from_waker(Waker::noop())).is_pending()
        && let Some(place) = places.take()
    {
        runtime.spawn(async move {
            // Started in the task: `sleep` panics in a runtime without timers, and the caller must not.
            rest.end(sleep(MAX_TIME)).await;
            drop(place);
        });
    }
}

#[cfg(all(test, feature = "axum"))]
mod tests;

/// Counts what happens at the same time, up to a bound.
struct Places {
    taken: AtomicUsize,
    most: usize,
}

/// Holds one place until it is dropped.
struct Place(&'static Places);

impl Places {
    const fn new(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    /// Takes a place. `None` when all are taken.
    fn take(&'static self) -> Option<Place> {
        // Counts itself first, so the place is given back by its drop in both cases.
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(self);
        (taken < self.most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Holds the part of a body that was not read yet.
struct Rest<B> {
    body: B,
    /// The number of bytes that may still be read.
    left: u64,
}

/// The least number of bytes that a frame counts, so that a body of empty frames ends too.
const SHORTEST_FRAME: u64 = 1024;

impl<B: Body + Unpin> Rest<B> {
    fn new(body: B, max_length: u64) -> Self {
        Self { body, left: max_length }
    }

    /// Reads on until the body ends, fails or is too long.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(Ok(frame)) = ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
            match self.left.checked_sub(length.max(SHORTEST_FRAME)) {
                Some(left) => self.left = left,
                None => break,
            }
        }
        Poll::Ready(())
    }

    /// Reads on until the body ends, fails or is too long, or until the time limit. Then it drops the body.
    async fn end(mut self, limit: impl Future<Output = ()>) {
        let mut limit = pin!(limit);
        poll_fn(|cx| if self.poll_end(cx).is_ready() { Poll::Ready(()) } else { limit.as_mut().poll(cx) }).await;
    }
}
