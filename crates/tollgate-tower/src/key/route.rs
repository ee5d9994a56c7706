use http::request::Parts;
use tollgate::Key;

#[cfg(feature = "axum")]
use super::KeyError;
use super::{Extraction, KeyExtractor};

/// The path of the request, as it was sent.
///
/// Nothing is normalised: case, `%2f`, `//`, `/./` and a slash at the end all make another path.
/// **Who can write one path in several ways has several quotas**, and where the path holds an
/// identifier, one for each of those. With axum use [`MatchedPath`]; use this for files and for
/// services that have no routes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path;

impl KeyExtractor for Path {
    fn extract(&self, parts: &Parts) -> Extraction {
        Ok(Some(Key::new(parts.uri.path())))
    }
}

/// The method of the request.
///
/// HEAD counts as GET, and methods that RFC 9110 and RFC 5789 do not know count as one: nobody gets
/// another quota by another word. **A service that lets a header or a parameter override the
/// method** gives every request the quota of the method it was sent with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Method;

impl KeyExtractor for Method {
    fn extract(&self, parts: &Parts) -> Extraction {
        use http::Method as M;
        let method = match parts.method {
            M::HEAD => "GET",
            M::GET | M::POST | M::PUT | M::PATCH | M::DELETE | M::OPTIONS | M::CONNECT | M::TRACE => {
                parts.method.as_str()
            }
            _ => "other",
        };
        Ok(Some(Key::new(method)))
    }
}

/// The route of an axum router that the request matched, `/users/{id}` for example: one quota for
/// each route, however its parameters are filled in.
///
/// A request that matches no route has none: its key is missing. Add the layer with
/// `Router::route_layer`, which such requests do not meet, or say with
/// [`or`](KeyExtractor::or) what their quota is.
///
/// ```
/// use tollgate_tower::key::{MatchedPath, Method, PeerIp};
///
/// // Every caller has a quota for each route and method.
/// let key = (PeerIp::new(), Method, MatchedPath);
/// # let _ = key;
/// ```
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedPath;

#[cfg(feature = "axum")]
impl KeyExtractor for MatchedPath {
    fn extract(&self, parts: &Parts) -> Extraction {
        match parts.extensions.get::<axum::extract::MatchedPath>() {
            Some(path) => Ok(Some(Key::new(path.as_str()))),
            None => Err(KeyError::missing("no route matches the request")),
        }
    }
}
