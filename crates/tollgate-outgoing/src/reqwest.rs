//! Makes a service of a client of `reqwest`, so that the layers go around it.
//! Nothing here limits anything: the layer is in `layer.rs`.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use reqwest::{Body, Client, Error, ResponseBuilderExt};
use tollgate_tower::{KeyExtractor, Respond};
use tower_service::Service;

use crate::{CopyBody, Outgoing};

/// A `reqwest::Client` as a Tower service for requests of the crate `http`. The client alone is a
/// service for `reqwest::Request`, with which the layers of this crate do not work.
///
/// Behind an [`OutgoingLayer`](crate::OutgoingLayer), call [`Outgoing::execute`]: it takes and
/// returns the types of reqwest.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_outgoing::{OutgoingLayer, ReqwestClient};
/// use tollgate_tower::key::Global;
/// use tower::Layer;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("http://{}/", listener.local_addr()?);
/// # tokio::spawn(axum::serve(listener, Router::new().route("/", get(|| async { "hello" }))).into_future());
/// let limiter = Limiter::new(MemoryStore::new(), Policy::leaky_bucket("geocoder", Quota::per_second(10)));
/// let client = reqwest::Client::new();
/// let api = OutgoingLayer::builder(limiter, Global)
///     .retries(2, ReqwestClient::copy_body)
///     .build()
///     .layer(ReqwestClient::new(client.clone()));
///
/// let response = api.execute(client.get(&url).build()?).await?;
/// assert_eq!(response.text().await?, "hello");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReqwestClient(Client);

impl ReqwestClient {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    /// Copies a body for [`OutgoingBuilder::retries`](crate::OutgoingBuilder::retries). Returns
    /// `None` for a stream.
    #[must_use]
    pub fn copy_body(body: &Body) -> Option<Body> {
        body.as_bytes().map(|bytes| Body::from(bytes.to_vec()))
    }
}

impl<K, C, R> Outgoing<ReqwestClient, K, C, R>
where
    K: KeyExtractor,
    C: CopyBody<Body>,
    R: Respond<Body>,
{
    /// Sends a request of reqwest when its turn comes.
    ///
    /// # Errors
    ///
    /// Fails as `reqwest::Client::execute` does. If the call would have to wait for too long, the
    /// result is no error, but a response with the status 429.
    pub async fn execute(&self, request: reqwest::Request) -> Result<reqwest::Response, Error> {
        let url = request.url().clone();
        // A client of reqwest is always ready.
        let mut response = self.clone().call(Request::try_from(request)?).await?;
        if response.extensions().get::<HasUrl>().is_none() {
            // A rejection by the layer: no client has answered.
            set_url(&mut response, url);
        }
        Ok(response.into())
    }
}

/// Marks the answer of a client.
#[derive(Clone, Copy)]
struct HasUrl;

/// Sets the URL that [`reqwest::Response::url`] returns. Without it, a response of HTTP that
/// becomes one of reqwest has none.
fn set_url(response: &mut Response<Body>, url: reqwest::Url) {
    if let Ok(parts) = Response::builder().url(url).body(()) {
        response
            .extensions_mut()
            .extend(parts.into_parts().0.extensions);
    }
}

impl Service<Request<Body>> for ReqwestClient {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let response = request.try_into().map(|request| self.0.call(request));
        Box::pin(async move {
            let response = response?.await?;
            let url = response.url().clone();
            let mut response = Response::from(response);
            response.extensions_mut().insert(HasUrl);
            set_url(&mut response, url);
            Ok(response)
        })
    }
}
