//! What both kinds of interceptor begin with: the limiter, and how the key of a call is found.
//! Each kind asks the limiter in its own way, in `synchronous.rs` and `asynchronous.rs`.

use std::fmt;

use tollgate::Key;
use tollgate_tower::KeyExtractor;
use tonic::{Request, Status};

use crate::{key::RequestHead, status::GrpcStatus};

/// A limiter, and the extractor that finds the key of a call.
pub(super) struct KeyedLimiter<L> {
    limiter: L,
    key: Box<dyn KeyExtractor>,
}

impl<L> KeyedLimiter<L> {
    pub(super) fn new(limiter: L, key: impl KeyExtractor) -> Self {
        Self {
            limiter,
            key: Box::new(key),
        }
    }

    pub(super) fn limiter(&self) -> &L {
        &self.limiter
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
}

impl<L: fmt::Debug> fmt::Debug for KeyedLimiter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.fmt(f)
    }
}
