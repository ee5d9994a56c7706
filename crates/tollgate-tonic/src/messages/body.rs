//! The bodies of a call whose messages are charged.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tonic::Status;

use super::toll::{Stop, Tolled};
use crate::form::Form;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body whose messages can be charged: tonic's, and with the feature `axum` axum's.
pub trait CallBody:
    Body<Data = Bytes, Error: Into<BoxError>> + Default + Send + Sized + 'static + sealed::FromBody
{
}

mod sealed {
    use super::{Body, BoxError, Bytes};

    pub trait FromBody {
        fn from_body<B>(body: B) -> Self
        where
            B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    }

    impl FromBody for tonic::body::Body {
        fn from_body<B>(body: B) -> Self
        where
            B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
        {
            Self::new(body)
        }
    }

    #[cfg(feature = "axum")]
    impl FromBody for axum_core::body::Body {
        fn from_body<B>(body: B) -> Self
        where
            B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
        {
            Self::new(body)
        }
    }
}

impl CallBody for tonic::body::Body {}

#[cfg(feature = "axum")]
impl CallBody for axum_core::body::Body {}

pin_project! {
    /// What a client sends. Denied, it ends with the status as its error, and the answer is told.
    pub(super) struct Received<B> {
        #[pin]
        body: Tolled<B>,
        denied: Option<oneshot::Sender<Status>>,
    }
}

impl<B: Body<Data = Bytes>> Received<B> {
    pub(super) fn new(body: Tolled<B>, denied: oneshot::Sender<Status>) -> Self {
        Self { body, denied: Some(denied) }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for Received<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        Poll::Ready(match ready!(this.body.poll_next(cx)) {
            Some(Err(Stop::Denied(status))) => {
                if let Some(denied) = this.denied.take() {
                    // Nobody to tell where the answer is complete.
                    let _ = denied.send(status.clone());
                }
                Some(Err(status.into()))
            }
            Some(Err(Stop::Failed(error))) => Some(Err(error.into())),
            Some(Ok(frame)) => Some(Ok(frame)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

/// Whether what the client sends was denied.
#[derive(Default)]
pub(super) struct Refusal(Option<oneshot::Receiver<Status>>);

impl Refusal {
    pub(super) fn new(denied: oneshot::Receiver<Status>) -> Self {
        Self(Some(denied))
    }

    /// The status, once; who asks is woken when there is one.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        let denied = self.0.as_mut()?;
        let Poll::Ready(answer) = Pin::new(denied).poll(cx) else { return None };
        self.0 = None;
        answer.ok()
    }
}

pin_project! {
    /// What a client is sent. Denied, or where what the client sends was denied, it ends with the
    /// status in the trailers.
    pub(super) struct Sent<B> {
        #[pin]
        body: Tolled<B>,
        refusal: Refusal,
        form: Form,
    }
}

impl<B: Body<Data = Bytes>> Sent<B> {
    pub(super) fn new(body: Tolled<B>, refusal: Refusal, form: Form) -> Self {
        Self { body, refusal, form }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for Sent<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        // The service's own end cannot be told from a message there, so it must not come first.
        let first = if *this.form == Form::Grpc { None } else { this.refusal.poll(cx) };
        let next = match first {
            Some(status) => Poll::Ready(Some(Err(Stop::Denied(status)))),
            None => this.body.as_mut().poll_next(cx),
        };
        // What the service has ready goes out first; its end, or waiting for more, is cut short.
        let is_data = matches!(&next, Poll::Ready(Some(Ok(frame))) if frame.is_data());
        let refused = if is_data { None } else { this.refusal.poll(cx) };
        let status = match (next, refused) {
            (_, Some(status)) | (Poll::Ready(Some(Err(Stop::Denied(status)))), None) => status,
            (Poll::Pending, None) => return Poll::Pending,
            (Poll::Ready(Some(Err(Stop::Failed(error)))), None) => return Poll::Ready(Some(Err(error.into()))),
            (Poll::Ready(Some(Ok(frame))), None) => return Poll::Ready(Some(Ok(frame))),
            (Poll::Ready(None), None) => return Poll::Ready(None),
        };
        this.body.close();
        *this.refusal = Refusal::default();
        Poll::Ready(Some(Ok(end(&status, *this.form))))
    }

    fn is_end_stream(&self) -> bool {
        self.refusal.0.is_none() && self.body.is_end_stream()
    }
}

/// The frame that ends a body with a status.
fn end(status: &Status, form: Form) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // Our own texts are fit for a header.
        trailers.insert(Status::GRPC_STATUS, i32::from(status.code()).into());
    }
    if form == Form::Grpc { Frame::trailers(trailers) } else { Frame::data(web_trailers(&trailers)) }
}

/// Trailers as gRPC-Web sends them: in a frame of the body.
fn web_trailers(trailers: &HeaderMap) -> Bytes {
    let mut frame = BytesMut::from(&[0x80, 0, 0, 0, 0][..]);
    for (name, value) in trailers {
        frame.put_slice(name.as_str().as_bytes());
        frame.put_slice(b":");
        frame.put_slice(value.as_bytes());
        frame.put_slice(b"\r\n");
    }
    let length = (frame.len() - 5) as u32;
    frame[1..5].copy_from_slice(&length.to_be_bytes());
    frame.freeze()
}
