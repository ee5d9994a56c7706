use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::Response;
use tower_service::Service;

use super::{future::ResponseFuture, gate::Gate};

/// Delays the requests of an inner service. [`RetryAfterLayer`](super::RetryAfterLayer) creates it.
///
/// Its response and error types are those of the inner service. Clones share the delay. A request that
/// is dropped during its delay is never sent.
#[derive(Clone)]
pub struct RetryAfter<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S> RetryAfter<S> {
    pub(super) fn new(inner: S, gate: Gate) -> Self {
        Self { inner, gate: Arc::new(gate) }
    }
}

impl<S, Request, Body> Service<Request> for RetryAfter<S>
where
    S: Service<Request, Response = Response<Body>> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, Request>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let gate = Arc::clone(&self.gate);
        match gate.opens_at() {
            None => ResponseFuture::calling(self.inner.call(request), gate),
            Some(opens_at) => {
                // The future takes the service that is ready. Its clone has to become ready before the next call.
                let clone = self.inner.clone();
                ResponseFuture::waiting(opens_at, mem::replace(&mut self.inner, clone), request, gate)
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for RetryAfter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryAfter").field("inner", &self.inner).finish_non_exhaustive()
    }
}
