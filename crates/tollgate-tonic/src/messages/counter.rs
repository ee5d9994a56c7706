//! Counts the messages of one response as they pass, and calls a closure with each number.
//! The layer that gives the numbers to a meter is in `counter_layer.rs`. Nothing here denies a
//! message.

use bytes::Buf;
use tollgate_tower::body::{BodyEnd, BodyGuard};

use super::boundaries::MessageBoundaries;

/// Counts the messages of a response body, as a [`BodyGuard`].
///
/// A closure receives the number of messages that begin in a frame, before the frame is passed on.
/// Trailers of gRPC-Web in the body do not count. Use the guard for bodies whose data is
/// [`Bytes`](bytes::Bytes), such as the bodies of tonic and axum. The messages of
/// `application/grpc-web-text` are encoded in base64, and are not counted correctly.
///
/// To count with the [`Meter`](tollgate_tower::Meter) of a call, use
/// [`MessageCounterLayer`](super::MessageCounterLayer).
///
/// ```
/// use bytes::Bytes;
/// use http_body_util::{BodyExt, Full};
/// use tollgate_tonic::messages::MessageCounter;
/// use tollgate_tower::{Meter, body::GuardedBody};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let meter = Meter::new();
/// let count = meter.clone();
/// // Two messages: one of three bytes, and an empty one.
/// let messages = Bytes::from_static(b"\0\0\0\0\x03abc\0\0\0\0\0");
/// let body = GuardedBody::new(Full::new(messages), MessageCounter::new(move |messages| count.add(messages)));
/// body.collect().await.unwrap();
/// assert_eq!(meter.get(), Some(2));
/// # }
/// ```
pub struct MessageCounter<F> {
    count: F,
    boundaries: MessageBoundaries,
}

impl<F: FnMut(u64)> MessageCounter<F> {
    /// Creates a counter that calls `count` for each frame in which messages begin, with their
    /// number.
    pub fn new(count: F) -> Self {
        Self {
            count,
            boundaries: MessageBoundaries::default(),
        }
    }
}

impl<F: FnMut(u64)> BodyGuard for MessageCounter<F> {
    fn on_data(&mut self, data: &dyn Buf) {
        let messages = self.boundaries.count(data.chunk());
        if messages > 0 {
            (self.count)(messages);
        }
    }

    fn on_end(&mut self, _: BodyEnd) {}
}

tollgate::debug_fields! { MessageCounter<F>: .. }
