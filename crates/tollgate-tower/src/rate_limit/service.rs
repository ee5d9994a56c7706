use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    drain::discard,
    key::{BoxedKey, KeyExtractor},
    rate_limit::{
        answer::Verdict,
        future::{PendingRequest, ResponseFuture},
        shared::Shared,
    },
    rejection::{Problem, Respond},
};

/// Limits the requests of an inner service. [`RateLimitLayer`](crate::RateLimitLayer) creates it.
///
/// Its response and error types are those of the inner service. `poll_ready` forwards to the inner
/// service and spends nothing: the limiter is checked when the request arrives.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimit, RateLimitLayer, key::Global};
/// use tower::Layer;
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("all", Quota::per_second(100)));
/// let service: RateLimit<&str, Global> = RateLimitLayer::new(limiter, Global).layer("inner service");
/// assert_eq!(*service.get_ref(), "inner service");
/// assert_eq!(service.into_inner(), "inner service");
/// ```
pub struct RateLimit<S, K = BoxedKey, R = Problem> {
    inner: S,
    shared: Arc<Shared<K, R>>,
}

impl<S, K, R> RateLimit<S, K, R> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<K, R>>) -> Self {
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

impl<S, K, R, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, K, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: KeyExtractor,
    R: Respond<ResBody>,
    ReqBody: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, K, R, ReqBody>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        match self.shared.check_request(&mut parts) {
            Verdict::Admit(admission) => {
                ResponseFuture::calling(&mut self.inner, Request::from_parts(parts, body), admission)
            }
            Verdict::Reject(response) => {
                discard(&parts, body);
                ResponseFuture::rejected(response)
            }
            Verdict::Wait(step) => {
                // The future takes the service that is ready. Its clone has to become ready before the next call.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::checking(PendingRequest { step, ready, parts, body }, Arc::clone(&self.shared))
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
            .field("limits", &self.shared.limits())
            .finish_non_exhaustive()
    }
}
