//! Charges the messages of a body as they pass.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tollgate::{Cost, store::CheckFuture};
use tollgate_tower::RequestLimiter;
use tonic::Status;

use super::boundaries::{MessageBoundaries, TRAILERS_FLAG};
use crate::status::GrpcStatus;

/// Charges each message after the first, and says how many bytes may pass.
pub(super) struct Meter {
    limiter: RequestLimiter,
    responder: Arc<GrpcStatus>,
    boundaries: MessageBoundaries,
    /// Is true when the message at hand is paid for. The first is: the charge for the call includes it.
    is_paid: bool,
    check: Option<CheckFuture>,
    denied: Option<Status>,
}

impl Meter {
    pub(super) fn new(limiter: RequestLimiter, responder: Arc<GrpcStatus>) -> Self {
        Self { limiter, responder, boundaries: MessageBoundaries::default(), is_paid: true, check: None, denied: None }
    }

    /// Returns how many of `bytes` may pass. When a message was denied, `denied` is set.
    fn poll_paid(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<usize> {
        let mut paid = 0;
        while let Some(&flags) = bytes.get(paid) {
            if !self.is_paid && flags & TRAILERS_FLAG == 0 {
                let check = self.check.get_or_insert_with(|| self.limiter.check(Cost::ONE));
                let Poll::Ready(result) = Pin::new(check).poll(cx) else {
                    return if paid > 0 { Poll::Ready(paid) } else { Poll::Pending };
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

pin_project! {
    /// Passes the frames of a body on, and charges their messages when it has a meter.
    pub(super) struct MeteredBody<B> {
        // Dropped at the end of the body, so that what the body holds is released at once.
        #[pin]
        body: Option<B>,
        meter: Option<Meter>,
        // Bytes that were read and are not paid for yet.
        unpaid: Bytes,
    }
}

/// The next frame of a body, or the reason why it ends early.
pub(super) type NextFrame<E> = Option<Result<Frame<Bytes>, BodyEnd<E>>>;

/// Says why a body ends early.
pub(super) enum BodyEnd<E> {
    Denied(Status),
    Failed(E),
}

impl<B: Body<Data = Bytes>> MeteredBody<B> {
    pub(super) fn new(body: B, meter: Option<Meter>) -> Self {
        Self { body: Some(body), meter, unpaid: Bytes::new() }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        // The bytes of a denied message stay here until the denial was read.
        self.unpaid.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Ends the body and drops everything that it holds.
    pub(super) fn close(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.body.set(None);
        this.unpaid.clear();
        *this.meter = None;
    }

    /// Returns the next frame. No byte of a message is in a frame before the message is paid for.
    pub(super) fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NextFrame<B::Error>> {
        loop {
            let mut this = self.as_mut().project();
            if let Some(status) = this.meter.as_mut().and_then(|meter| meter.denied.take()) {
                self.close();
                return Poll::Ready(Some(Err(BodyEnd::Denied(status))));
            }
            if let Some(meter) = this.meter
                && !this.unpaid.is_empty()
            {
                match ready!(meter.poll_paid(cx, this.unpaid)) {
                    0 => continue,
                    paid => return Poll::Ready(Some(Ok(Frame::data(this.unpaid.split_to(paid))))),
                }
            }
            let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            match ready!(body.poll_frame(cx)) {
                Some(Ok(frame)) if this.meter.is_some() => match frame.into_data() {
                    Ok(data) => *this.unpaid = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => {
                    self.close();
                    return Poll::Ready(Some(Err(BodyEnd::Failed(error))));
                }
                None => {
                    self.close();
                    return Poll::Ready(None);
                }
            }
        }
    }
}
