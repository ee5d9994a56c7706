//! Which protocol a request speaks, by its `content-type`.

use http::{HeaderMap, HeaderValue, Response, header};
use tonic::Status;

/// A form of gRPC. The status is the same in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-Web, where the layer stands outside the one that translates it.
    Web,
    /// The same in base64.
    WebText,
}

const GRPC: &[u8] = b"application/grpc";

impl Form {
    /// `None` for a request that is no gRPC call.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::CONTENT_TYPE)?.as_bytes();
        let (start, rest) = value.split_at_checked(GRPC.len())?;
        if !start.eq_ignore_ascii_case(GRPC) {
            return None;
        }
        let ends = rest.iter().position(|byte| matches!(byte, b'+' | b';' | b' '));
        match &rest[..ends.unwrap_or(rest.len())] {
            b"" => Some(Self::Grpc),
            web if web.eq_ignore_ascii_case(b"-web") => Some(Self::Web),
            text if text.eq_ignore_ascii_case(b"-web-text") => Some(Self::WebText),
            _ => None,
        }
    }

    /// An answer that is a status and nothing else, in one frame.
    pub(crate) fn trailers_only<B: Default>(self, status: Status) -> Response<B> {
        let mut response = status.into_http();
        response.headers_mut().insert(header::CONTENT_TYPE, self.content_type());
        response
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Grpc => "application/grpc",
            Self::Web => "application/grpc-web+proto",
            Self::WebText => "application/grpc-web-text+proto",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content_type: &'static str) -> Option<Form> {
        Form::of(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(content_type))]))
    }

    #[test]
    fn a_call_is_known_by_its_content_type() {
        for grpc in ["application/grpc", "application/grpc+proto", "Application/GRPC;v=1", "application/grpc ; v=1"] {
            assert_eq!(of(grpc), Some(Form::Grpc), "{grpc}");
        }
        assert_eq!(of("application/grpc-web"), Some(Form::Web));
        assert_eq!(of("application/grpc-web+proto"), Some(Form::Web));
        assert_eq!(of("application/grpc-web-text"), Some(Form::WebText));
        assert_eq!(of("application/grpc-web-text+proto"), Some(Form::WebText));
        for other in ["application/json", "application/grpcurl", "application/grpc-webby", "application/gr", ""] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(Form::of(&HeaderMap::new()), None);
    }
}
