//! Reads the rest of request bodies that nobody else reads: for handlers and interceptors that
//! reject a request before its body has arrived.
//!
//! A limit, an interceptor or a handler may respond to a request before its body was read. The
//! server then has to end the body early, which has side effects:
//!
//! - Over HTTP/1.1 it closes the connection. A proxy may already have sent its next request on it.
//! - Over HTTP/2 it resets the stream. A client that is still sending, such as curl or httpx, then
//!   reports the reset and not the response. The crate h2 (from 0.4.16 on) also counts each further
//!   frame of less than 256 bytes against a budget of the connection. When the budget is spent, the
//!   connection ends with `ENHANCE_YOUR_CALM`, and all its calls fail.
//!
//! When a layer of this crate rejects a request, it reads the rest of the body itself, if the body
//! is an `axum::body::Body` or a `tonic::body::Body`. A [`DrainLayer`] does it for everything
//! inside of it, and for every type of body.
//!
//! The response never waits for the body. The rest is read in the background and discarded: up to
//! 16 MiB of each body, for up to 2 s. At most 4096 bodies are read in this way at the same time in
//! a process. A client may stop sending when it has the response.
//!
//! Beyond these bounds the body is dropped, and the server ends it as above. A body is dropped at
//! once if the client holds it back with `Expect: 100-continue`, or outside of a tokio runtime.
//!
//! # The runtime needs its timers
//!
//! `enable_time`, `enable_all` and `#[tokio::main]` start the timers. tokio's `sleep` panics in a
//! runtime without timers, and the layer cannot know whether a runtime has them. A body that has
//! not arrived with its request is read in a task. Without timers, this task panics at its start:
//!
//! - tokio catches the panic. The body is dropped, and the server ends it as above. Nothing else
//!   fails. The panic hook prints a message for each such body.
//! - In a program that is compiled with `panic = "abort"`, the first such body ends the process.
//!
//! Bodies that have arrived with their requests need no timer.

// The reading of unwanted bodies of requests, and its bounds. Bodies of responses are in `body/`.

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

/// The number of bytes that are read at most. What is read is not kept, so that the window of the
/// connection is not taken from its other streams.
const MAX_LENGTH: u64 = 16 * 1024 * 1024;

/// The longest time for which a body is read.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Limits the bodies that are read at the same time in this process, because each takes some
/// memory.
static PLACES: Places = Places::new(4096);

/// Takes the body of a rejected request, and reads it to its end.
///
/// It reads the bodies of axum and tonic. It drops a body of another type, which need not be
/// [`Send`].
#[inline]
#[cfg_attr(
    not(any(feature = "axum", feature = "tonic")),
    allow(unused_variables, reason = "no body is recognised")
)]
pub(crate) fn discard<B: 'static>(head: &Parts, body: B) {
    // The types are known to the compiler, so nothing of this is left at run time.
    let mut body = Some(body);
    let body: &mut dyn Any = &mut body;
    #[cfg(feature = "axum")]
    if let Some(body) = body
        .downcast_mut::<Option<axum::body::Body>>()
        .and_then(Option::take)
    {
        read(is_held_back(&head.headers), body, &PLACES);
    }
    #[cfg(feature = "tonic")]
    if let Some(body) = body
        .downcast_mut::<Option<tonic::body::Body>>()
        .and_then(Option::take)
    {
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
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    let mut rest = Rest::new(body, MAX_LENGTH);
    // Most often the body is there, so there is no task to spawn.
    if rest
        .poll_end(&mut Context::from_waker(Waker::noop()))
        .is_pending()
        && let Some(place) = places.take()
    {
        runtime.spawn(async move {
            // Started in the task: `sleep` panics in a runtime without timers, and the caller must
            // not.
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

/// Takes one place until it is dropped.
struct Place(&'static Places);

impl Places {
    const fn new(most: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            most,
        }
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

/// The part of a body that was not read yet.
struct Rest<B> {
    body: B,
    /// The number of bytes that may still be read.
    left: u64,
}

/// The least number of bytes that a frame counts, so that a body of empty frames ends too.
const SHORTEST_FRAME: u64 = 1024;

impl<B: Body + Unpin> Rest<B> {
    fn new(body: B, max_length: u64) -> Self {
        Self {
            body,
            left: max_length,
        }
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

    /// Reads on until the body ends, fails or is too long, or until the time limit. Then it drops
    /// the body.
    async fn end(mut self, limit: impl Future<Output = ()>) {
        let mut limit = pin!(limit);
        poll_fn(|cx| {
            if self.poll_end(cx).is_ready() {
                Poll::Ready(())
            } else {
                limit.as_mut().poll(cx)
            }
        })
        .await;
    }
}
