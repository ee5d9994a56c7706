use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;

use super::{
    denial_signal::DenialSender,
    message_body::BoxError,
    metered_body::{BodyEnd, MeteredBody},
};

pin_project! {
    /// Charges the messages of a request. A denial ends the body with the status as its error, and
    /// is signalled to the response.
    pub(super) struct RequestBody<B> {
        #[pin]
        body: MeteredBody<B>,
        denial: DenialSender,
    }
}

impl<B: Body<Data = Bytes>> RequestBody<B> {
    pub(super) fn new(body: MeteredBody<B>, denial: DenialSender) -> Self {
        Self { body, denial }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        Poll::Ready(match ready!(this.body.poll_next(cx)) {
            Some(Err(BodyEnd::Denied(status))) => {
                this.denial.send(&status);
                Some(Err(status.into()))
            }
            Some(Err(BodyEnd::Failed(error))) => Some(Err(error.into())),
            Some(Ok(frame)) => Some(Ok(frame)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
