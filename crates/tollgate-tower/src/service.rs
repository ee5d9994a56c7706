use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    KeyExtractor, Respond,
    future::{Asking, ResponseFuture},
    rejection::Problem,
    shared::{Asked, Shared},
};

/// A service behind a rate limit, made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Its responses and errors are those of the service inside. Being ready is the service's own
/// affair: nothing is reserved or spent before a request is there.
pub struct RateLimit<S, K, R = Problem> {
    inner: S,
    shared: Arc<Shared<K, R>>,
}

impl<S, K, R> RateLimit<S, K, R> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<K, R>>) -> Self {
        Self { inner, shared }
    }

    /// The service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service inside.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service inside, without its limit.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, K, R, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, R, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        match self.shared.ask(&mut parts) {
            Asked::Passes(passed) => ResponseFuture::serve(&mut self.inner, Request::from_parts(parts, body), passed),
            Asked::Refused(response) => ResponseFuture::answered(response),
            Asked::Check(check, ticket) => {
                // The service that is ready goes along; what stays has to become ready again.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                let request = Request::from_parts(parts, body);
                ResponseFuture::deciding(Asking { check, ready, request, ticket }, Arc::clone(&self.shared))
            }
        }
    }
}

impl<S: Clone, K, R> Clone for RateLimit<S, K, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, K, R> fmt::Debug for RateLimit<S, K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}
