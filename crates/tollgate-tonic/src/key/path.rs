use http::request::Parts;
use tollgate::Key;
use tollgate_tower::{
    KeyExtractor,
    key::{Extraction, KeyError},
};

use super::head::NoPath;
use crate::path::service_and_method;

/// The method that is called, by the full path: `/helloworld.Greeter/SayHello`.
///
/// Alone it is one quota for all callers of a method; in a tuple each caller has one for each
/// method. For *different* quotas see [`MethodLimiters`](crate::MethodLimiters).
///
/// A path that no service answers to is a key too, so put the layer around the services whose
/// methods should count.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tonic::key::{Method, Service};
/// use tollgate_tower::KeyExtractor;
///
/// let (parts, ()) = Request::post("/helloworld.Greeter/SayHello").body(()).unwrap().into_parts();
/// assert_eq!(Method.extract(&parts).unwrap(), Some(Key::new("/helloworld.Greeter/SayHello")));
/// assert_eq!(Service.extract(&parts).unwrap(), Some(Key::new("helloworld.Greeter")));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Method;

/// The service that is called, by its full name: `helloworld.Greeter`. See [`Method`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Service;

impl KeyExtractor for Method {
    fn extract(&self, parts: &Parts) -> Extraction {
        called(parts).map(|_| Some(Key::new(parts.uri.path())))
    }
}

impl KeyExtractor for Service {
    fn extract(&self, parts: &Parts) -> Extraction {
        called(parts).map(|(service, _)| Some(Key::new(service)))
    }
}

fn called(parts: &Parts) -> Result<(&str, &str), KeyError> {
    if parts.extensions.get::<NoPath>().is_some() {
        return Err(KeyError::misconfigured(
            "interceptors and handlers do not see which method is called: key by method in a layer",
        ));
    }
    service_and_method(parts.uri.path()).ok_or_else(|| KeyError::missing("the path names no method of a service"))
}
