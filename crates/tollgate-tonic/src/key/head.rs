//! The head of a call where tonic shows it without its path: in interceptors and in handlers.

use http::request::Parts;
use tollgate::Key;
use tollgate_tower::{KeyExtractor, key::Extraction};
use tonic::{Extensions, Request, Status, metadata::MetadataMap};

use crate::GrpcStatus;

/// The path is not known here, and not empty either.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoPath;

/// Metadata and extensions as extractors want to see them.
pub(crate) struct Head(Parts);

impl Head {
    pub(crate) fn new(metadata: MetadataMap, extensions: Extensions) -> Self {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.headers = metadata.into_headers();
        parts.extensions = extensions;
        parts.extensions.insert(NoPath);
        Self(parts)
    }

    pub(crate) fn extract(&self, key: &(impl KeyExtractor + ?Sized)) -> Extraction {
        key.extract(&self.0)
    }

    pub(crate) fn into_request(mut self) -> Request<()> {
        self.0.extensions.remove::<NoPath>();
        Request::from_parts(MetadataMap::from_headers(self.0.headers), self.0.extensions, ())
    }
}

/// The key of a request in a handler; `None` when the extractor exempts it.
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
///
/// # Errors
///
/// `INVALID_ARGUMENT` when the key is missing; `INTERNAL`, and a line in the log, when the service
/// is set up wrongly: [`Method`](super::Method) and [`Service`](super::Service) for example cannot
/// be told here.
pub fn key_of<T>(request: &Request<T>, key: &impl KeyExtractor) -> Result<Option<Key>, Status> {
    let head = Head::new(request.metadata().clone(), request.extensions().clone());
    head.extract(key).map_err(|error| GrpcStatus::new().keyless_and_logged(&error))
}
