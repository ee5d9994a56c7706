//! The extractors for what a request asks for: its path, its method, its route.
//! Who asks is found by other extractors, such as those in `header.rs` and `peer.rs`.

use http::request::Parts;
use tollgate_core::Key;

#[cfg(feature = "axum")]
use super::extractor::KeyError;
use super::extractor::{Extraction, KeyExtractor};

/// Uses the path of the request as the key.
///
/// The path is not normalised: with another case, `%2f`, `//`, `/./` or a slash at the end, it is
/// another key. **A client that can write one path in several ways has several quotas.** A path
/// that contains an identifier has one quota for each identifier. With axum use `MatchedRoute`.
/// Use this extractor for files and for services without routes.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::RequestPath};
///
/// let (parts, ()) = Request::get("http://example.com/a?b=c").body(()).unwrap().into_parts();
/// assert_eq!(RequestPath.extract(&parts).unwrap(), Some(Key::new("/a")));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestPath;

impl KeyExtractor for RequestPath {
    fn extract(&self, parts: &Parts) -> Extraction {
        Ok(Some(Key::new(parts.uri.path())))
    }
}

/// Uses the method of the request as the key.
///
/// HEAD counts as GET. All methods that RFC 9110 and RFC 5789 do not define share one key, so that
/// a client cannot invent methods to get more quotas. **If a header or a parameter overrides the
/// method** in your service, the key is still the method in the request line.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tower::{KeyExtractor, key::RequestMethod};
///
/// let (parts, ()) = Request::head("/").body(()).unwrap().into_parts();
/// assert_eq!(RequestMethod.extract(&parts).unwrap(), Some(Key::new("GET")));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestMethod;

impl KeyExtractor for RequestMethod {
    fn extract(&self, parts: &Parts) -> Extraction {
        use http::Method as M;
        let method = match parts.method {
            M::HEAD => "GET",
            M::GET
            | M::POST
            | M::PUT
            | M::PATCH
            | M::DELETE
            | M::OPTIONS
            | M::CONNECT
            | M::TRACE => parts.method.as_str(),
            _ => "other",
        };
        Ok(Some(Key::new(method)))
    }
}

/// Uses the route of an axum router as the key, such as `/users/{id}`.
///
/// All values of a parameter share the quota of the route. A request that matches no route has no
/// key: inside `Router::layer`, the response is 404, and the fallback of the router is not called.
/// Add the layer with `Router::route_layer`, which does not apply to such requests, or give them a
/// key with [`or`](KeyExtractor::or).
///
/// ```
/// use axum::{Router, body::Body, routing::get};
/// use http::Request;
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, key::{MatchedRoute, RequestMethod}};
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("daily", Quota::per_day(1)));
/// let app: Router = Router::new()
///     .route("/users/{id}", get(|| async { "hello" }))
///     .route_layer(RateLimitLayer::new(limiter, (RequestMethod, MatchedRoute)));
///
/// let request = |path: &str| Request::get(path).body(Body::empty()).unwrap();
/// assert_eq!(app.clone().oneshot(request("/users/1")).await.unwrap().status(), 200);
/// assert_eq!(app.oneshot(request("/users/2")).await.unwrap().status(), 429);
/// # }
/// ```
#[cfg(feature = "axum")]
#[doc(alias = "MatchedPath")]
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedRoute;

#[cfg(feature = "axum")]
impl KeyExtractor for MatchedRoute {
    fn extract(&self, parts: &Parts) -> Extraction {
        match parts.extensions.get::<axum::extract::MatchedPath>() {
            Some(path) => Ok(Some(Key::new(path.as_str()))),
            None => Err(KeyError::no_route("no route matches the request")),
        }
    }
}
