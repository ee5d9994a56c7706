use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{
    future::ResponseFuture,
    shared::{AdaptiveBody, Shared},
};
use crate::{
    drain::discard,
    rejection::{Problem, Respond},
};

/// Limits the requests in flight of an inner service. [`AdaptiveLayer`](super::AdaptiveLayer) creates it.
///
/// `poll_ready` forwards to the inner service: a slot is taken when the request arrives.
pub struct Adaptive<S, R = Problem> {
    inner: S,
    shared: Arc<Shared<R>>,
}

impl<S, R> Adaptive<S, R> {
    pub(super) fn new(inner: S, shared: Arc<Shared<R>>) -> Self {
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

impl<S, R, ReqBody, ResBody> Service<Request<ReqBody>> for Adaptive<S, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: 'static,
    ResBody: Body,
    R: Respond<ResBody>,
{
    type Response = Response<AdaptiveBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, ResBody, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let slot = match self.shared.admit(&parts) {
            Ok(slot) => slot,
            Err(overload) => {
                let response = self.shared.reject(&overload, &parts);
                discard(&parts, body);
                return ResponseFuture::rejected(response);
            }
        };
        let request = Request::from_parts(parts, body);
        ResponseFuture::calling(self.inner.call(request), slot, &self.shared)
    }
}

impl<S: Clone, R> Clone for Adaptive<S, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for Adaptive<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive")
            .field("inner", &self.inner)
            .field("limiter", &self.shared.limiter)
            .finish_non_exhaustive()
    }
}
