//! A body whose messages are charged.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tollgate::{CheckFuture, Cost};
use tollgate_tower::RequestLimiter;
use tonic::Status;

use super::frames::Frames;
use crate::GrpcStatus;

/// Lets bytes pass as far as their messages are paid for.
pub(super) struct Toll {
    account: RequestLimiter,
    answer: Arc<GrpcStatus>,
    frames: Frames,
    /// The call was charged when it was opened, and its first message with it.
    is_paid: bool,
    asked: Option<CheckFuture>,
    denied: Option<Status>,
}

/// In gRPC-Web the trailers are a frame among those of the messages; its flag has this bit.
const TRAILERS: u8 = 0x80;

impl Toll {
    pub(super) fn new(account: RequestLimiter, answer: Arc<GrpcStatus>) -> Self {
        Self { account, answer, frames: Frames::default(), is_paid: true, asked: None, denied: None }
    }

    /// How many of `bytes` may pass; none once a message is denied.
    fn poll_paid(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<usize> {
        let mut paid = 0;
        while let Some(&flag) = bytes.get(paid) {
            if self.frames.is_between() && !self.is_paid && flag & TRAILERS == 0 {
                let check = self.asked.get_or_insert_with(|| self.account.check(Cost::ONE));
                let Poll::Ready(answer) = Pin::new(check).poll(cx) else {
                    return if paid > 0 { Poll::Ready(paid) } else { Poll::Pending };
                };
                self.asked = None;
                if !self.account.admits(&answer)
                    && let Err(status) = self.answer.judge(answer)
                {
                    self.denied = Some(status);
                    return Poll::Ready(paid);
                }
            }
            // Of the rest of a message nothing is asked.
            self.is_paid = true;
            paid += self.frames.advance(&bytes[paid..]);
            self.is_paid = !self.frames.is_between();
        }
        Poll::Ready(paid)
    }
}

pin_project! {
    /// A body, and its toll unless it passes for free.
    pub(super) struct Tolled<B> {
        // Gone once it has ended, and what it held with it.
        #[pin]
        body: Option<B>,
        toll: Option<Toll>,
        rest: Bytes,
    }
}

/// What comes next of a body.
pub(super) type Next<E> = Option<Result<Frame<Bytes>, Stop<E>>>;

/// Why a body ends early.
pub(super) enum Stop<E> {
    Denied(Status),
    Failed(E),
}

impl<B: Body<Data = Bytes>> Tolled<B> {
    pub(super) fn new(body: B, toll: Option<Toll>) -> Self {
        Self { body: Some(body), toll, rest: Bytes::new() }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let is_denied = self.toll.as_ref().is_some_and(|toll| toll.denied.is_some());
        self.rest.is_empty() && !is_denied && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Ends it.
    pub(super) fn close(self: Pin<&mut Self>) {
        let mut this = self.project();
        this.body.set(None);
        this.rest.clear();
        *this.toll = None;
    }

    /// The next frame; a message begins in none before it is paid for.
    pub(super) fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next<B::Error>> {
        loop {
            let mut this = self.as_mut().project();
            if let Some(status) = this.toll.as_mut().and_then(|toll| toll.denied.take()) {
                self.close();
                return Poll::Ready(Some(Err(Stop::Denied(status))));
            }
            if let Some(toll) = this.toll
                && !this.rest.is_empty()
            {
                match ready!(toll.poll_paid(cx, this.rest)) {
                    0 => continue,
                    paid => return Poll::Ready(Some(Ok(Frame::data(this.rest.split_to(paid))))),
                }
            }
            let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            match ready!(body.poll_frame(cx)) {
                Some(Ok(frame)) if this.toll.is_some() => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => {
                    self.close();
                    return Poll::Ready(Some(Err(Stop::Failed(error))));
                }
                None => {
                    self.close();
                    return Poll::Ready(None);
                }
            }
        }
    }
}
