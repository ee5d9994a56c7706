//! Detects the gRPC protocol of a request by its `content-type`.
//! The status in the answer is made in `status/`. Messages of a body are found in
//! `messages/boundaries.rs`.

use http::{HeaderMap, HeaderValue, Response, header};
use tonic::Status;

/// Names a protocol that carries gRPC calls. A status has the same fields in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-Web in binary. The layer sees it when it stands outside the layer of tonic-web.
    GrpcWeb,
    /// gRPC-Web in base64.
    GrpcWebText,
}

const GRPC: &[u8] = b"application/grpc";

impl Protocol {
    /// Returns the protocol of a request with these headers; `None` when the request is not a gRPC
    /// call.
    pub(crate) fn detect(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::CONTENT_TYPE)?.as_bytes();
        let (start, rest) = value.split_at_checked(GRPC.len())?;
        if !start.eq_ignore_ascii_case(GRPC) {
            return None;
        }
        let end = rest
            .iter()
            .position(|byte| matches!(byte, b'+' | b';' | b' '));
        match &rest[..end.unwrap_or(rest.len())] {
            b"" => Some(Self::Grpc),
            web if web.eq_ignore_ascii_case(b"-web") => Some(Self::GrpcWeb),
            text if text.eq_ignore_ascii_case(b"-web-text") => Some(Self::GrpcWebText),
            _ => None,
        }
    }

    /// Returns a Trailers-Only response: the status stands in the headers, and there is no body.
    pub(crate) fn trailers_only<B: Default>(self, status: Status) -> Response<B> {
        let mut response = status.into_http();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, self.content_type());
        response
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Grpc => "application/grpc",
            Self::GrpcWeb => "application/grpc-web+proto",
            Self::GrpcWebText => "application/grpc-web-text+proto",
        })
    }
}
