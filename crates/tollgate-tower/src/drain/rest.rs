use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http_body::Body;

/// Holds the part of a body that was not read yet.
pub(super) struct Rest<B> {
    body: B,
    /// The number of bytes that may still be read.
    left: u64,
}

/// The least number of bytes that a frame counts, so that a body of empty frames ends too.
const SHORTEST_FRAME: u64 = 1024;

impl<B: Body + Unpin> Rest<B> {
    pub(super) fn new(body: B, max_length: u64) -> Self {
        Self { body, left: max_length }
    }

    /// Reads on until the body ends, fails or is too long.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
    pub(super) async fn end(mut self, limit: impl Future<Output = ()>) {
        let mut limit = pin!(limit);
        poll_fn(|cx| if self.poll_end(cx).is_ready() { Poll::Ready(()) } else { limit.as_mut().poll(cx) }).await;
    }
}
