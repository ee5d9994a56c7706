//! Extracts keys where tonic shows a request without its path: in interceptors and in handlers.
//! Extractors such as `metadata.rs` know nothing of it: they read `http::request::Parts` alone.

use http::request::Parts;
use tollgate::Key;
#[cfg(feature = "async-interceptor")]
use tollgate::limiter::LimiterFuture;
use tollgate_tower::{KeyExtractor, key::Extraction};
#[cfg(feature = "async-interceptor")]
use tollgate_tower::{LimiterSource, key::KeyError};
use tonic::{Extensions, Request, Status, metadata::MetadataMap};

use crate::status::GrpcStatus;

/// Marks a request whose path is not known, so that the path `/` is not taken for the real one.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathUnknown;

/// The metadata and the extensions of a request in the form that extractors read.
pub(crate) struct RequestHead(Parts);

impl RequestHead {
    pub(crate) fn new(metadata: MetadataMap, extensions: Extensions) -> Self {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.headers = metadata.into_headers();
        parts.extensions = extensions;
        parts.extensions.insert(PathUnknown);
        Self(parts)
    }

    pub(crate) fn extract(&self, key: &(impl KeyExtractor + ?Sized)) -> Extraction {
        key.extract(&self.0)
    }

    /// Returns the limiter of the request.
    #[cfg(feature = "async-interceptor")]
    pub(crate) fn limiter(&self, limiters: &LimiterSource) -> Result<LimiterFuture, KeyError> {
        limiters.limiter_for(&self.0)
    }

    pub(crate) fn into_request(mut self) -> Request<()> {
        self.0.extensions.remove::<PathUnknown>();
        Request::from_parts(
            MetadataMap::from_headers(self.0.headers),
            self.0.extensions,
            (),
        )
    }
}

/// Returns the key of a request inside a handler; `None` when the extractor exempts the request.
///
/// [`RpcMethod`](super::RpcMethod) and [`RpcService`](super::RpcService) do not work here, because
/// tonic does not show the path of a call to its handler.
///
/// # Errors
///
/// - `INVALID_ARGUMENT` when the key is missing from the request.
/// - `INTERNAL` when the service is set up wrongly. The log has the reason.
///
/// # Examples
///
/// ```
/// use tollgate::Key;
/// use tollgate_tonic::key::{Metadata, key_of};
/// use tonic::Request;
///
/// let mut request = Request::new("a message");
/// request.metadata_mut().insert("x-api-key", "acme".parse().unwrap());
/// assert_eq!(key_of(&request, &Metadata::new("x-api-key")).unwrap(), Some(Key::new("acme")));
///
/// let status = key_of(&request, &Metadata::new("x-tenant")).unwrap_err();
/// assert_eq!(status.message(), "metadata x-tenant is missing");
/// ```
pub fn key_of<T>(request: &Request<T>, key: &impl KeyExtractor) -> Result<Option<Key>, Status> {
    let head = RequestHead::new(request.metadata().clone(), request.extensions().clone());
    head.extract(key)
        .map_err(|error| GrpcStatus::new().logged_key_error_status(&error))
}
