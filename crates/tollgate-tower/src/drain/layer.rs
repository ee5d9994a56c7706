use tower_layer::Layer;

use super::service::Drain;

/// Reads the rest of request bodies that the service inside of it drops before their end.
///
/// The layers of this crate need it for bodies of other types than axum's and tonic's alone. It belongs **outside** of all
/// that answers before the body was read: a handler that refuses by a [`HandlerLimiter`](crate::HandlerLimiter), an
/// interceptor of tonic, a layer of another crate. The [module](crate::drain) says how much it reads, and why.
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
