//! A body that passes its items on when their units are reserved.
//! See `events.rs` for where an item ends. Streams of items are in `stream.rs`.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tollgate_core::reservation::GrowthError;
use tollgate_tower::Meter;

use crate::{
    events::{EventBuffer, Items},
    gate::UnitGate,
    stream::LastItem,
};

pin_project! {
    /// Passes the items of a body on while their units are reserved, and ends where they are not.
    ///
    /// Each frame of data is an item, or each event of `text/event-stream` with
    /// [`events`](Self::events), whatever frames it comes in. Trailers pass. All else is as in
    /// [`MeteredStream`](crate::MeteredStream). Use that where the handler has the items.
    ///
    /// The length of the body is not known: [`meter_response`] removes the header of a response that
    /// names one.
    #[must_use = "bodies do nothing unless polled"]
    pub struct MeteredBody<B, U> {
        // Dropped at the end, so that what the body holds is released at once.
        #[pin]
        body: Option<B>,
        units: U,
        gate: UnitGate,
        items: Items,
        // The item that is not counted yet, and its units.
        held: Option<(Bytes, u64)>,
        // They follow the last item.
        trailers: Option<HeaderMap>,
        last: Option<LastItem<Bytes>>,
    }
}

/// Counts the items of a response as they pass, and removes its `Content-Length`.
///
/// ```
/// use axum::{Router, body::{Body, to_bytes}, http::Request, response::Response, routing::get};
/// use tollgate::{Limiter, Policy, Quota};
/// use tollgate_metered::meter_response;
/// use tollgate_tower::{Meter, RateLimitLayer, key::Global};
/// use tower::ServiceExt;
///
/// /// Passes the answer of a model server on.
/// async fn proxy(meter: Meter) -> Response {
///     let answer = Response::new(Body::from("data: {}\n\ndata: {}\n\ndata: {}\n\ndata: [DONE]\n\n"));
///     let events = |event: &[u8]| u64::from(event != b"data: [DONE]\n\n");
///     meter_response(answer, &meter, events).map(|body| {
///         let body = body.events();
///         Body::new(body.end_with(|_denied| Some("data: {\"finish_reason\": \"length\"}\n\n".into())))
///     })
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let events = Limiter::in_memory(Policy::fixed_window("events", Quota::per_day(2)));
/// let layer = RateLimitLayer::builder(events, Global).reserve(|_request| 0).growing(1).build();
/// let app: Router = Router::new().route("/", get(proxy)).layer(layer);
/// let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
/// let body = to_bytes(response.into_body(), 1_000).await.unwrap();
/// assert_eq!(body, "data: {}\n\ndata: {}\n\ndata: {\"finish_reason\": \"length\"}\n\n");
/// # }
/// ```
pub fn meter_response<B, U>(
    response: Response<B>,
    meter: &Meter,
    units: U,
) -> Response<MeteredBody<B, U>>
where
    B: Body<Data = Bytes>,
    U: FnMut(&[u8]) -> u64,
{
    let mut response = response.map(|body| MeteredBody::new(body, meter, units));
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}

impl<B: Body<Data = Bytes>, U: FnMut(&[u8]) -> u64> MeteredBody<B, U> {
    /// Creates a body that counts by `meter`. `units` returns the units of an item.
    pub fn new(body: B, meter: &Meter, units: U) -> Self {
        Self {
            body: Some(body),
            units,
            gate: UnitGate::new(meter),
            items: Items::Frames(Bytes::new()),
            held: None,
            trailers: None,
            last: None,
        }
    }

    /// Counts events of `text/event-stream` in place of frames. An event passes when its last byte
    /// has come, and one of more than 1 MiB passes in pieces.
    pub fn events(mut self) -> Self {
        self.items = Items::Events(EventBuffer::default());
        self
    }

    /// Ends a denied body with these bytes, which are not counted: see
    /// [`MeteredStream::end_with`](crate::MeteredStream::end_with).
    pub fn end_with(
        mut self,
        last: impl FnOnce(GrowthError) -> Option<Bytes> + Send + 'static,
    ) -> Self {
        self.last = Some(Box::new(last));
        self
    }

    /// Waits for up to `max_wait` for the units of an item: see
    /// [`MeteredStream::wait`](crate::MeteredStream::wait).
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.gate.wait(max_wait);
        self
    }

    /// Goes on with another meter when the reservation of the one before is denied: see
    /// [`MeteredStream::or`](crate::MeteredStream::or).
    pub fn or(mut self, meter: &Meter) -> Self {
        self.gate.or(meter);
        self
    }
}

impl<B: Body<Data = Bytes>, U: FnMut(&[u8]) -> u64> Body for MeteredBody<B, U> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            let mut this = self.as_mut().project();
            if let Some((_, units)) = this.held {
                let outcome = ready!(this.gate.poll_take(cx, *units));
                let held = this.held.take();
                let data = match outcome {
                    Ok(()) => held.map(|(item, _)| item),
                    Err(error) => {
                        this.body.set(None);
                        *this.trailers = None;
                        this.items.rest();
                        this.last.take().and_then(|last| last(error))
                    }
                };
                return Poll::Ready(data.map(|data| Ok(Frame::data(data))));
            }
            let is_over = this.body.is_none();
            let next = match is_over {
                true => this.items.rest(),
                false => this.items.next(),
            };
            if let Some(item) = next {
                match (this.units)(&item) {
                    0 => return Poll::Ready(Some(Ok(Frame::data(item)))),
                    units => *this.held = Some((item, units)),
                }
                continue;
            }
            let Some(body) = this.body.as_mut().as_pin_mut() else {
                let trailers = this
                    .trailers
                    .take()
                    .map(|trailers| Ok(Frame::trailers(trailers)));
                return Poll::Ready(trailers);
            };
            match ready!(body.poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.items.push(data),
                    Err(frame) => {
                        *this.trailers = frame.into_trailers().ok();
                        this.body.set(None);
                    }
                },
                Some(Err(error)) => {
                    this.body.set(None);
                    this.items.rest();
                    return Poll::Ready(Some(Err(error)));
                }
                None => this.body.set(None),
            }
        }
    }
}

impl<B, U> fmt::Debug for MeteredBody<B, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredBody")
            .field("gate", &self.gate)
            .field("has_ended", &self.body.is_none())
            .finish_non_exhaustive()
    }
}
