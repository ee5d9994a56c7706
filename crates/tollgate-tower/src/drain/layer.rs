//! The layer for everything that may leave a body unread, whatever its type.
//! How the rest is read is in `mod.rs`, which the layers of this crate call directly.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Request;
use http_body::{Body, Frame, SizeHint};
use tower_layer::Layer;
use tower_service::Service;

use super::{PLACES, is_held_back, read};

/// Reads the rest of request bodies that the service inside of it drops before their end.
///
/// Place it **outside** of everything that responds before the body was read: a handler that checks
/// a [`HandlerLimiter`](crate::HandlerLimiter), an interceptor of tonic, a layer of another crate.
/// The layers of this crate need it only for a body that is no `axum::body::Body` and no
/// `tonic::body::Body`. The [module](crate::drain) says how much it reads, and why.
///
/// ```
/// use axum::{Router, body::Body, extract::{Request, State}, response::{IntoResponse, Response}, routing::put};
/// use http::StatusCode;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{HandlerLimiter, RateLimitLayer, Rejected, drain::DrainLayer, key::Header};
/// use tower::ServiceExt;
///
/// async fn upload(State(folders): State<HandlerLimiter<Body>>, request: Request) -> Result<Response, Rejected<Body>> {
///     let (mut head, _upload) = request.into_parts();
///     let folder = head.uri.path().to_owned();
///     let admitted = folders.check(&mut head, folder).await?;
///     Ok(admitted.complete(StatusCode::CREATED.into_response()))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let clients = Limiter::new(MemoryStore::new(), Policy::fixed_window("client", Quota::per_day(100)));
/// let folders = Limiter::new(MemoryStore::new(), Policy::fixed_window("folder", Quota::per_day(1)));
/// let layer = RateLimitLayer::new(clients, Header::new("x-api-key"));
/// let folders = layer.handler_limiter(folders);
/// let app = Router::new().route("/{folder}", put(upload)).with_state(folders).layer(DrainLayer::new());
///
/// let upload = || Request::put("/pictures").body(Body::from(vec![0; 100_000])).unwrap();
/// assert_eq!(app.clone().oneshot(upload()).await.unwrap().status(), 201);
/// assert_eq!(app.oneshot(upload()).await.unwrap().status(), 429);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DrainLayer(());

impl DrainLayer {
    /// Creates the layer.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for DrainLayer {
    type Service = Drain<S>;

    fn layer(&self, inner: S) -> Drain<S> {
        Drain::new(inner)
    }
}

/// Reads the rest of request bodies that the inner service drops before their end.
///
/// [`DrainLayer`](crate::drain::DrainLayer) creates it.
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

    /// Returns the inner service, mutably.
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
        self.inner
            .call(request.map(|body| DrainBody::new(body, is_held_back)))
    }
}

/// A request body whose rest is read when it is dropped before its end.
/// [`DrainLayer`](crate::drain::DrainLayer) creates it.
///
/// The frames pass unchanged, trailers included.
pub struct DrainBody<B: Body + Send + Unpin + 'static> {
    /// `None` when the body has ended or failed, so that there is no rest.
    body: Option<B>,
    is_held_back: bool,
}

impl<B: Body + Send + Unpin + 'static> DrainBody<B> {
    pub(super) fn new(body: B, is_held_back: bool) -> Self {
        Self {
            body: Some(body),
            is_held_back,
        }
    }
}

/// Creates a body that has ended. Services such as interceptors need it.
impl<B: Body + Send + Unpin + 'static> Default for DrainBody<B> {
    fn default() -> Self {
        Self {
            body: None,
            is_held_back: false,
        }
    }
}

impl<B: Body + Send + Unpin + 'static> Body for DrainBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body + Send + Unpin + 'static> Drop for DrainBody<B> {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            read(self.is_held_back, body, &PLACES);
        }
    }
}

impl<B: Body + Send + Unpin + 'static> fmt::Debug for DrainBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainBody")
            .field("has_ended", &self.body.is_none())
            .finish_non_exhaustive()
    }
}
