//! Charges the messages of a body as they pass.
//! Where a message begins is found in `boundaries.rs`. Which bodies are wrapped is decided in
//! `service.rs`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tollgate::{Cost, store::CheckFuture};
use tollgate_tower::RequestLimiter;
use tonic::Status;

use super::boundaries::{MessageBoundaries, PREFIX_LENGTH, TRAILERS_FLAG};
use crate::{protocol::Protocol, status::GrpcStatus};

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Charges each message after the first, and says how many bytes may pass.
pub(super) struct Meter {
    limiter: RequestLimiter,
    responder: Arc<GrpcStatus>,
    boundaries: MessageBoundaries,
    /// The message at hand is paid for. The first is: the charge for the call includes it.
    is_paid: bool,
    check: Option<CheckFuture>,
    denied: Option<Status>,
}

impl Meter {
    pub(super) fn new(limiter: RequestLimiter, responder: Arc<GrpcStatus>) -> Self {
        Self {
            limiter,
            responder,
            boundaries: MessageBoundaries::default(),
            is_paid: true,
            check: None,
            denied: None,
        }
    }

    /// Returns how many of `bytes` may pass. When a message was denied, `denied` is set.
    fn poll_paid(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<usize> {
        let mut paid = 0;
        while let Some(&flags) = bytes.get(paid) {
            if !self.is_paid && flags & TRAILERS_FLAG == 0 {
                let check = self
                    .check
                    .get_or_insert_with(|| self.limiter.check(Cost::ONE));
                let Poll::Ready(result) = Pin::new(check).poll(cx) else {
                    return if paid > 0 {
                        Poll::Ready(paid)
                    } else {
                        Poll::Pending
                    };
                };
                self.check = None;
                if !self.limiter.admits(&result)
                    && let Err(status) = self.responder.check_result(result)
                {
                    self.denied = Some(status);
                    return Poll::Ready(paid);
                }
            }
            // The message is paid for until its last byte has passed.
            paid += self.boundaries.advance(&bytes[paid..]);
            self.is_paid = !self.boundaries.is_at_start();
        }
        Poll::Ready(paid)
    }
}

/// Says where the status of a denial goes.
pub(super) enum Direction {
    /// To the handler, as the error of its request, and to the response. The call ends outside the
    /// handler, because a handler may ignore an error in its request stream.
    Received(Option<oneshot::Sender<Status>>),
    /// To the client, in the trailers. A message of the request may be denied, too.
    Sent(Protocol, Denial),
}

/// Receives the status when a message of the request is denied.
pub(super) type Denial = Option<oneshot::Receiver<Status>>;

/// Returns the status when a message of the request was denied; otherwise registers the task to be
/// woken.
pub(super) fn poll_denial(denial: &mut Denial, cx: &mut Context<'_>) -> Option<Status> {
    let Poll::Ready(status) = Pin::new(denial.as_mut()?).poll(cx) else {
        return None;
    };
    *denial = None;
    status.ok()
}

pin_project! {
    /// Passes the frames of a body on, charges their messages when it has a meter, and ends with
    /// the status of a denial.
    #[allow(missing_debug_implementations, reason = "only the bodies of tonic and axum see it")]
    pub struct ChargedBody<B> {
        // Dropped at the end of the body, so that what the body holds is released at once.
        #[pin]
        body: Option<B>,
        meter: Option<Meter>,
        // Bytes that were read and are not paid for yet.
        unpaid: Bytes,
        direction: Direction,
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> ChargedBody<B> {
    pub(super) fn new(body: B, meter: Option<Meter>, direction: Direction) -> Self {
        Self {
            body: Some(body),
            meter,
            unpaid: Bytes::new(),
            direction,
        }
    }

    /// Ends the body and drops everything that it holds.
    fn close(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.body.set(None);
        this.unpaid.clear();
        *this.meter = None;
    }

    /// Returns the next frame, or the end when a message was denied. No byte of a message is in a
    /// frame before the message is paid for.
    fn poll_paid(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            let mut this = self.as_mut().project();
            if let Some(meter) = this.meter {
                if meter.denied.is_some() {
                    return Poll::Ready(None);
                }
                if !this.unpaid.is_empty() {
                    match ready!(meter.poll_paid(cx, this.unpaid)) {
                        0 => continue,
                        paid => {
                            return Poll::Ready(Some(Ok(Frame::data(this.unpaid.split_to(paid)))));
                        }
                    }
                }
            }
            let Some(body) = this.body.as_mut().as_pin_mut() else {
                return Poll::Ready(None);
            };
            let frame = match ready!(body.poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => {
                    self.close();
                    return Poll::Ready(end.map(|failed| failed.map_err(Into::into)));
                }
            };
            if this.meter.is_none() {
                return Poll::Ready(Some(Ok(frame)));
            }
            match frame.into_data() {
                Ok(data) => *this.unpaid = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }

    /// Returns the status of a denied message of this body, or of the request.
    fn poll_denied(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Option<Status> {
        let this = self.project();
        let own = this.meter.as_mut().and_then(|meter| meter.denied.take());
        own.or_else(|| match this.direction {
            Direction::Received(_) => None,
            Direction::Sent(_, denial) => poll_denial(denial, cx),
        })
    }

    /// Ends the body with a status.
    fn deny(mut self: Pin<&mut Self>, status: Status) -> Result<Frame<Bytes>, BoxError> {
        self.as_mut().close();
        match self.project().direction {
            Direction::Received(response) => {
                if let Some(response) = response.take() {
                    // The receiver is gone when the response is complete: then there is nothing to
                    // end.
                    let _ = response.send(status.clone());
                }
                Err(status.into())
            }
            Direction::Sent(protocol, denial) => {
                *denial = None;
                Ok(last_frame(&status, *protocol))
            }
        }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ChargedBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // In gRPC-Web the trailers of the handler look like data. They must not go out before the
        // denial.
        let is_web = matches!(
            self.direction,
            Direction::Sent(Protocol::GrpcWeb | Protocol::GrpcWebText, _)
        );
        if is_web && let Some(status) = self.as_mut().poll_denied(cx) {
            return Poll::Ready(Some(self.deny(status)));
        }
        let next = self.as_mut().poll_paid(cx);
        // Data that is ready goes out before the denial. The denial replaces everything else.
        let is_data = matches!(&next, Poll::Ready(Some(Ok(frame))) if frame.is_data());
        if !is_data && let Some(status) = self.as_mut().poll_denied(cx) {
            return Poll::Ready(Some(self.deny(status)));
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        // The bytes of a denied message stay here until the denial was read.
        let may_be_denied =
            !self.unpaid.is_empty() || matches!(self.direction, Direction::Sent(_, Some(_)));
        !may_be_denied && self.body.as_ref().is_none_or(Body::is_end_stream)
    }
}

/// Returns the frame that ends a body with a status.
fn last_frame(status: &Status, protocol: Protocol) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // Cannot happen: our statuses hold only valid header values. If it does, the code is
        // enough.
        trailers.insert(Status::GRPC_STATUS, i32::from(status.code()).into());
    }
    if protocol == Protocol::Grpc {
        Frame::trailers(trailers)
    } else {
        Frame::data(web_trailers(&trailers))
    }
}

/// Encodes trailers for gRPC-Web, which sends them in the body, in the form of a message.
fn web_trailers(trailers: &HeaderMap) -> Bytes {
    let mut message = BytesMut::from(&[TRAILERS_FLAG, 0, 0, 0, 0][..]);
    for (name, value) in trailers {
        message.put_slice(name.as_str().as_bytes());
        message.put_slice(b":");
        message.put_slice(value.as_bytes());
        message.put_slice(b"\r\n");
    }
    let length = (message.len() - PREFIX_LENGTH) as u32;
    message[1..PREFIX_LENGTH].copy_from_slice(&length.to_be_bytes());
    message.freeze()
}

/// Marks the body types whose messages can be charged.
///
/// These are `tonic::body::Body` and, with the feature `axum`, `axum::body::Body`. The trait is
/// sealed, because the service builds a new body of the same type around the old one.
pub trait MessageBody:
    Body<Data = Bytes, Error: Into<BoxError>> + Default + Send + Sized + 'static + sealed::FromBody
{
}

mod sealed {
    use super::ChargedBody;

    pub trait FromBody: Sized {
        fn charged(body: ChargedBody<Self>) -> Self;
    }
}

impl MessageBody for tonic::body::Body {}

impl sealed::FromBody for tonic::body::Body {
    fn charged(body: ChargedBody<Self>) -> Self {
        Self::new(body)
    }
}

#[cfg(feature = "axum")]
impl MessageBody for axum_core::body::Body {}

#[cfg(feature = "axum")]
impl sealed::FromBody for axum_core::body::Body {
    fn charged(body: ChargedBody<Self>) -> Self {
        Self::new(body)
    }
}
