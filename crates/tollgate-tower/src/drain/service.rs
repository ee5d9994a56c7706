use std::task::{Context, Poll};

use http::Request;
use http_body::Body;
use tower_service::Service;

use super::{body::DrainBody, is_held_back};

/// Reads the rest of request bodies that the inner service drops before their end. [`DrainLayer`](super::DrainLayer) creates it.
#[derive(Clone, Copy, Debug)]
pub struct Drain<S> {
    inner: S,
}

impl<S> Drain<S> {
    pub(super) const fn new(inner: S) -> Self {
        Self { inner }
    }

    /// Returns the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service for changes.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service without the layer.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, B> Service<Request<B>> for Drain<S>
where
    S: Service<Request<DrainBody<B>>>,
    B: Body + Send + Unpin + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let is_held_back = is_held_back(request.headers());
        self.inner.call(request.map(|body| DrainBody::new(body, is_held_back)))
    }
}
