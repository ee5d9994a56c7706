//! Reads the short body of a rejected request to its end.
//!
//! A layer decides before the body of a request was read. A server has to end a body that nobody reads, and this costs more
//! than the rejection. Over HTTP/1.1 it closes the connection, on which a proxy may have sent its next request already. Over
//! HTTP/2 it resets the stream, and h2 charges each short frame that still arrives for the stream to a budget of the
//! connection. When the budget is spent, the connection ends with `ENHANCE_YOUR_CALM`, and all its calls fail.
//!
//! The response never waits for the body. What is not there yet is read in a task, up to [`MAX_LENGTH`] and for
//! [`MAX_TIME`].

#![cfg_attr(not(any(feature = "axum", feature = "tonic")), allow(dead_code, reason = "no body is recognised"))]

mod places;
mod rest;
mod timer;

use std::{
    any::Any,
    task::{Context, Waker},
    time::Duration,
};

use http::{header::EXPECT, request::Parts};
use http_body::Body;
use tokio::runtime::Handle;

use places::Places;
use rest::Rest;

/// The number of bytes that are read at most.
const MAX_LENGTH: u64 = 64 * 1024;

/// The longest time for which a body is read.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Limits the bodies that are read at the same time in this process, because each takes some memory.
static PLACES: Places = Places::new(4096);

/// Takes the body of a rejected request, and reads it to its end when it is short.
///
/// It reads the bodies of axum and tonic. It drops a body of another type, which need not be [`Send`].
#[inline]
pub(crate) fn discard<B: 'static>(head: &Parts, body: B) {
    // The types are known to the compiler, so nothing of this is left at run time.
    let mut body = Some(body);
    let body: &mut dyn Any = &mut body;
    #[cfg(feature = "axum")]
    if let Some(body) = body.downcast_mut::<Option<axum::body::Body>>().and_then(Option::take) {
        return read(head, body, &PLACES);
    }
    #[cfg(feature = "tonic")]
    if let Some(body) = body.downcast_mut::<Option<tonic::body::Body>>().and_then(Option::take) {
        return read(head, body, &PLACES);
    }
    let _ = (head, body);
}

/// Reads what is there of a body at once, and the rest in a task.
fn read<B: Body + Send + Unpin + 'static>(head: &Parts, body: B, places: &'static Places) {
    // A client that expects 100 (Continue) sends its body only when the server reads it.
    if body.is_end_stream() || body.size_hint().lower() > MAX_LENGTH || head.headers.contains_key(EXPECT) {
        return;
    }
    let Ok(runtime) = Handle::try_current() else { return };
    let mut rest = Rest::new(body, MAX_LENGTH);
    // Most often the body is there, so there is no task to spawn.
    if rest.poll_end(&mut Context::from_waker(Waker::noop())).is_pending()
        && let Some(place) = places.take()
        && let Some(limit) = timer::sleep(MAX_TIME)
    {
        runtime.spawn(async move {
            rest.end(limit).await;
            drop(place);
        });
    }
}

#[cfg(all(test, feature = "axum"))]
mod tests;
