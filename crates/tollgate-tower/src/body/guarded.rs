//! The body that watches itself: it finds out how it ended, and reports that once.
//! What follows from an end is decided by the guard: see `guard.rs`.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http::{Response, header};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::guard::{BodyEnd, BodyGuard};

pin_project! {
    /// A body that ends a guard when it ends, fails or is dropped. Frames pass unchanged.
    ///
    /// The guard ends once, and as early as possible: with the last frame, if the body says that no
    /// further one follows. If the body is dropped before its end, the guard ends after the inner
    /// body was dropped. The wrapper allocates nothing. It has the size hint of the inner body.
    ///
    /// The [module](crate::body) has an example. To wrap the body of a response, use
    /// [`guard_response`].
    pub struct GuardedBody<B, G>
    where
        G: BodyGuard,
    {
        #[pin]
        body: B,
        // After the body, so that it is dropped after the body.
        guard: LastGuard<G>,
        // Bytes of the announced `Content-Length` that were not passed on yet.
        missing: Option<u64>,
        // Set while the body is polled, to distinguish a panic from a disconnect.
        is_polled: bool,
    }

    impl<B, G: BodyGuard> PinnedDrop for GuardedBody<B, G> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            this.guard.on_drop = match *this.missing {
                _ if *this.is_polled => BodyEnd::Failed,
                // A server that has sent the announced bytes does not ask for the end of the body.
                Some(0) => BodyEnd::Complete,
                _ => BodyEnd::Dropped,
            };
        }
    }
}

/// Ends the guard of a body when it is dropped.
struct LastGuard<G: BodyGuard> {
    // `None` once the guard has ended.
    guard: Option<G>,
    on_drop: BodyEnd,
}

impl<G: BodyGuard> LastGuard<G> {
    const fn new(guard: Option<G>) -> Self {
        Self {
            guard,
            on_drop: BodyEnd::Dropped,
        }
    }

    /// Ends the guard, unless it has ended.
    fn finish(&mut self, end: BodyEnd) {
        if let Some(mut guard) = self.guard.take() {
            guard.on_end(end);
        }
    }
}

impl<G: BodyGuard> Drop for LastGuard<G> {
    fn drop(&mut self) {
        self.finish(self.on_drop);
    }
}

/// Wraps the body of a response, and ends `guard` when the body ends, fails or is dropped.
///
/// Unlike [`GuardedBody::new`], it reads `Content-Length`: a server drops a body of known length
/// after its last byte, without asking for the end of the body. Such a body is
/// [complete](BodyEnd::Complete).
///
/// ```
/// use http::Response;
/// use http_body_util::BodyExt;
/// use tollgate_tower::body::{BodyEnd, guard_fn, guard_response};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let response = Response::new("hello".to_owned());
/// let response = guard_response(response, guard_fn(move |end| sender.send(end).unwrap()));
/// assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
/// assert_eq!(receiver.recv().unwrap(), BodyEnd::Complete);
/// # }
/// ```
pub fn guard_response<B: Body, G: BodyGuard>(
    response: Response<B>,
    guard: G,
) -> Response<GuardedBody<B, G>> {
    let length = response.headers().get(header::CONTENT_LENGTH);
    let missing = length.and_then(|length| length.to_str().ok()?.parse().ok());
    // A response to HEAD announces a length that its body does not have: no byte has to pass before
    // the end.
    let missing = missing.filter(|&missing| missing > 0);
    response.map(|body| {
        let mut body = GuardedBody::new(body, guard);
        body.missing = missing;
        body
    })
}

impl<B: Body, G: BodyGuard> GuardedBody<B, G> {
    /// Wraps a body. An empty body ends the guard at once, because a server does not poll it.
    #[must_use]
    pub fn new(body: B, guard: G) -> Self {
        let mut guard = LastGuard::new(Some(guard));
        if body.is_end_stream() {
            guard.finish(BodyEnd::Complete);
        }
        Self {
            body,
            guard,
            missing: None,
            is_polled: false,
        }
    }
}

impl<B, G: BodyGuard> GuardedBody<B, G> {
    /// Wraps a body without a guard, for a function that returns bodies with and without one.
    #[must_use]
    pub fn unguarded(body: B) -> Self {
        Self {
            body,
            guard: LastGuard::new(None),
            missing: None,
            is_polled: false,
        }
    }

    /// Returns the guard, until the body ends.
    #[must_use]
    pub fn guard(&self) -> Option<&G> {
        self.guard.guard.as_ref()
    }

    /// Returns the inner body.
    #[must_use]
    pub fn get_ref(&self) -> &B {
        &self.body
    }
}

impl<B: Body, G: BodyGuard> Body for GuardedBody<B, G> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        *this.is_polled = true;
        let next = this.body.as_mut().poll_frame(cx);
        *this.is_polled = false;
        let next = ready!(next);
        let end = match &next {
            Some(Ok(frame)) => {
                if let (Some(data), Some(guard)) = (frame.data_ref(), this.guard.guard.as_mut()) {
                    *this.missing = this
                        .missing
                        .map(|missing| missing.saturating_sub(data.remaining() as u64));
                    guard.on_data(data);
                }
                if let (Some(trailers), Some(guard)) =
                    (frame.trailers_ref(), this.guard.guard.as_mut())
                {
                    guard.on_trailers(trailers);
                }
                // Trailers are the last frame (RFC 9110, section 6.5).
                (frame.is_trailers() || this.body.is_end_stream()).then_some(BodyEnd::Complete)
            }
            Some(Err(_)) => Some(BodyEnd::Failed),
            None => Some(BodyEnd::Complete),
        };
        if let Some(end) = end {
            this.guard.finish(end);
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: From<String>, G: BodyGuard> From<String> for GuardedBody<B, G> {
    /// Creates a body without a guard, for a responder that writes text.
    fn from(text: String) -> Self {
        Self::unguarded(text.into())
    }
}

impl<B: Default, G: BodyGuard> Default for GuardedBody<B, G> {
    /// Creates a body without a guard.
    fn default() -> Self {
        Self::unguarded(B::default())
    }
}

impl<B: fmt::Debug, G: BodyGuard> fmt::Debug for GuardedBody<B, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedBody")
            .field("body", &self.body)
            .field("is_ended", &self.guard.guard.is_none())
            .finish_non_exhaustive()
    }
}
