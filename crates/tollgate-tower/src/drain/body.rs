use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};

use super::{PLACES, read};

/// Wraps the body of a request, and reads its rest when it is dropped before its end. [`DrainLayer`](super::DrainLayer) makes it.
///
/// The frames pass unchanged, trailers included.
pub struct DrainBody<B: Body + Send + Unpin + 'static> {
    /// `None` when the body has ended or failed, so that there is no rest.
    body: Option<B>,
    is_held_back: bool,
}

impl<B: Body + Send + Unpin + 'static> DrainBody<B> {
    pub(super) fn new(body: B, is_held_back: bool) -> Self {
        Self { body: Some(body), is_held_back }
    }
}

/// A body that has ended. Services such as interceptors need it.
impl<B: Body + Send + Unpin + 'static> Default for DrainBody<B> {
    fn default() -> Self {
        Self { body: None, is_held_back: false }
    }
}

impl<B: Body + Send + Unpin + 'static> Body for DrainBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body + Send + Unpin + 'static> Drop for DrainBody<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            read(self.is_held_back, body, &PLACES);
        }
    }
}

impl<B: Body + Send + Unpin + 'static> fmt::Debug for DrainBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainBody").field("has_ended", &self.body.is_none()).finish_non_exhaustive()
    }
}
