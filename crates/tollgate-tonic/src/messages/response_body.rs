use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tonic::Status;

use super::{
    boundaries::{PREFIX_LENGTH, TRAILERS_FLAG},
    denial_signal::DenialReceiver,
    message_body::BoxError,
    metered_body::{BodyEnd, MeteredBody},
};
use crate::protocol::Protocol;

pin_project! {
    /// Charges the messages of a response. A denial in either direction ends the body with the
    /// status in the trailers.
    pub(super) struct ResponseBody<B> {
        #[pin]
        body: MeteredBody<B>,
        denial: DenialReceiver,
        protocol: Protocol,
    }
}

impl<B: Body<Data = Bytes>> ResponseBody<B> {
    pub(super) fn new(body: MeteredBody<B>, denial: DenialReceiver, protocol: Protocol) -> Self {
        Self { body, denial, protocol }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        // In gRPC-Web the trailers of the handler look like data. They must not go out before the denial.
        let denied_first = if *this.protocol == Protocol::Grpc { None } else { this.denial.poll(cx) };
        let next = match denied_first {
            Some(status) => Poll::Ready(Some(Err(BodyEnd::Denied(status)))),
            None => this.body.as_mut().poll_next(cx),
        };
        // Data that the handler has ready goes out before the denial. The denial replaces everything else.
        let is_data = matches!(&next, Poll::Ready(Some(Ok(frame))) if frame.is_data());
        let denied = if is_data { None } else { this.denial.poll(cx) };
        let status = match (next, denied) {
            (_, Some(status)) | (Poll::Ready(Some(Err(BodyEnd::Denied(status)))), None) => status,
            (Poll::Pending, None) => return Poll::Pending,
            (Poll::Ready(Some(Err(BodyEnd::Failed(error)))), None) => return Poll::Ready(Some(Err(error.into()))),
            (Poll::Ready(Some(Ok(frame))), None) => return Poll::Ready(Some(Ok(frame))),
            (Poll::Ready(None), None) => return Poll::Ready(None),
        };
        this.body.close();
        *this.denial = DenialReceiver::default();
        Poll::Ready(Some(Ok(last_frame(&status, *this.protocol))))
    }

    fn is_end_stream(&self) -> bool {
        !self.denial.is_open() && self.body.is_end_stream()
    }
}

/// Returns the frame that ends a body with a status.
fn last_frame(status: &Status, protocol: Protocol) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // Cannot happen: our statuses hold only valid header values. If it does, the code is enough.
        trailers.insert(Status::GRPC_STATUS, i32::from(status.code()).into());
    }
    if protocol == Protocol::Grpc { Frame::trailers(trailers) } else { Frame::data(web_trailers(&trailers)) }
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
