use std::fmt;

use tollgate::{CheckFuture, Key, Limiter};
use tollgate_tower::KeyExtractor;
use tonic::{Request, Status};

use crate::{key::RequestHead, status::GrpcStatus};

/// Holds a limiter and the extractor that finds the key of a call.
pub(super) struct KeyedLimiter {
    limiter: Limiter,
    key: Box<dyn KeyExtractor>,
}

impl KeyedLimiter {
    pub(super) fn new(limiter: Limiter, key: impl KeyExtractor) -> Self {
        Self { limiter, key: Box::new(key) }
    }

    /// Returns the head of a request and its key; no key when the request is exempt.
    pub(super) fn key_of(
        &self,
        request: Request<()>,
        responder: &GrpcStatus,
    ) -> Result<(RequestHead, Option<Key>), Status> {
        let (metadata, extensions, ()) = request.into_parts();
        let head = RequestHead::new(metadata, extensions);
        match head.extract(&*self.key) {
            Ok(key) => Ok((head, key)),
            Err(error) => Err(responder.logged_key_error_status(&error)),
        }
    }

    pub(super) fn check(&self, key: Key) -> CheckFuture {
        self.limiter.check(key)
    }
}

impl fmt::Debug for KeyedLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.fmt(f)
    }
}
