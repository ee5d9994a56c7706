use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    body::PermitBody,
    future::{PendingRequest, ResponseFuture},
    in_flight::InFlight,
    shared::Shared,
};
use crate::{
    drain::discard,
    key::{BoxedKey, KeyExtractor},
    rejection::{Problem, Respond},
};

/// Limits the requests of an inner service that are in flight. [`ConcurrencyLayer`](super::ConcurrencyLayer) creates it.
///
/// `poll_ready` forwards to the inner service: a permit is taken when the request arrives.
pub struct ConcurrencyService<S, K = BoxedKey, R = Problem> {
    inner: S,
    shared: Arc<Shared<K, R>>,
}

impl<S, K, R> ConcurrencyService<S, K, R> {
    pub(super) fn new(inner: S, shared: Arc<Shared<K, R>>) -> Self {
        Self { inner, shared }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service for changes.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Removes the limit and returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, R, ReqBody, ResBody> Service<Request<ReqBody>> for ConcurrencyService<S, K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ReqBody: 'static,
    ResBody: Body,
{
    type Response = Response<PermitBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, R, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match self.shared.key(&parts) {
            Ok(None) => {
                let request = Request::from_parts(parts, body);
                ResponseFuture::calling(self.inner.call(request), InFlight::EXEMPT, &self.shared)
            }
            Ok(Some(key)) => {
                // The future takes the service that is ready. Its clone has to become ready before the next call.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                let acquire = self.shared.acquire(key);
                ResponseFuture::acquiring(PendingRequest { acquire, ready, parts, body }, &self.shared)
            }
            Err(error) => {
                let response = self.shared.reject_without_key(&error, &parts);
                discard(&parts, body);
                ResponseFuture::rejected(response, &self.shared)
            }
        }
    }
}

impl<S: Clone, K, R> Clone for ConcurrencyService<S, K, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, K, R> fmt::Debug for ConcurrencyService<S, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyService")
            .field("inner", &self.inner)
            .field("limiter", &self.shared.limiter)
            .finish_non_exhaustive()
    }
}
