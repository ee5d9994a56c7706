//! What a body can be watched by: the trait, and its simplest implementations.
//! The body that calls it is in `guarded.rs`. Guards with a purpose stand with that purpose.

use std::fmt;

use bytes::Buf;
use http::HeaderMap;

/// Follows a response body to its end.
///
/// Implement it to do something when the body of a response ends: log its length, or give a permit
/// back. [`Held`] only drops a value then, and [`guard_fn`] calls a closure.
/// [`GuardedBody`](crate::body::GuardedBody) wraps a body with a guard.
///
/// The methods run while the server polls or drops the body. They must not block. To await
/// something, spawn a task.
pub trait BodyGuard {
    /// Reads the data of a frame, before the server receives the frame. The default does nothing.
    fn on_data(&mut self, data: &dyn Buf) {
        let _ = data;
    }

    /// Reads the trailers, before the server receives them. The default does nothing.
    fn on_trailers(&mut self, trailers: &HeaderMap) {
        let _ = trailers;
    }

    /// Reports how the body ended. The method is called once, and then the guard is dropped.
    fn on_end(&mut self, end: BodyEnd);
}

/// Says how a response body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyEnd {
    /// The server has taken all frames of the body.
    ///
    /// The client may not have received them yet: the last ones can be in the buffers of the server
    /// and of the network.
    Complete,
    /// The body returned an error, or panicked.
    Failed,
    /// The server dropped the body before its end. Most often the client has disconnected.
    ///
    /// The server also drops the body of a response to a HEAD request, unless it is empty, because
    /// it sends only the head.
    Dropped,
}

impl<G: BodyGuard + ?Sized> BodyGuard for Box<G> {
    fn on_data(&mut self, data: &dyn Buf) {
        (**self).on_data(data);
    }

    fn on_trailers(&mut self, trailers: &HeaderMap) {
        (**self).on_trailers(trailers);
    }

    fn on_end(&mut self, end: BodyEnd) {
        (**self).on_end(end);
    }
}

impl<G: BodyGuard> BodyGuard for Option<G> {
    fn on_data(&mut self, data: &dyn Buf) {
        if let Some(guard) = self {
            guard.on_data(data);
        }
    }

    fn on_trailers(&mut self, trailers: &HeaderMap) {
        if let Some(guard) = self {
            guard.on_trailers(trailers);
        }
    }

    fn on_end(&mut self, end: BodyEnd) {
        if let Some(guard) = self {
            guard.on_end(end);
        }
    }
}

impl<G: BodyGuard, H: BodyGuard> BodyGuard for (G, H) {
    fn on_data(&mut self, data: &dyn Buf) {
        self.0.on_data(data);
        self.1.on_data(data);
    }

    fn on_trailers(&mut self, trailers: &HeaderMap) {
        self.0.on_trailers(trailers);
        self.1.on_trailers(trailers);
    }

    fn on_end(&mut self, end: BodyEnd) {
        self.0.on_end(end);
        self.1.on_end(end);
    }
}

/// Keeps a value until the body ends, and drops it then.
///
/// ```
/// use http_body_util::{BodyExt, Empty};
/// use std::sync::Arc;
/// use tokio::sync::Semaphore;
/// use tollgate_tower::body::{GuardedBody, Held};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let streams = Arc::new(Semaphore::new(1));
/// let permit = Arc::clone(&streams).try_acquire_owned().unwrap();
/// let body = GuardedBody::new("hello".to_owned(), Held(permit));
/// assert_eq!(streams.available_permits(), 0);
/// body.collect().await.unwrap();
/// assert_eq!(streams.available_permits(), 1);
/// # let _ = Empty::<bytes::Bytes>::new();
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<T>(
    /// The value.
    pub T,
);

impl<T> BodyGuard for Held<T> {
    fn on_end(&mut self, _: BodyEnd) {}
}

/// Creates a guard that calls a closure when the body ends.
pub const fn guard_fn<F: FnOnce(BodyEnd)>(on_end: F) -> GuardFn<F> {
    GuardFn(Some(on_end))
}

/// Calls a closure when the body ends. [`guard_fn`] creates it.
#[derive(Clone, Copy)]
pub struct GuardFn<F>(Option<F>);

impl<F: FnOnce(BodyEnd)> BodyGuard for GuardFn<F> {
    fn on_end(&mut self, end: BodyEnd) {
        if let Some(on_end) = self.0.take() {
            on_end(end);
        }
    }
}

impl<F> fmt::Debug for GuardFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuardFn(..)")
    }
}
