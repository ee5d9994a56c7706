//! The key extractors that read the path of a call: one quota for each method, or for each service.
//! Different quotas for methods are a table of limiters, in `method_limiters.rs`.

use http::request::Parts;
use tollgate::Key;
use tollgate_tower::{
    KeyExtractor,
    key::{Extraction, KeyError},
};

use super::request::PathUnknown;
use crate::path::service_and_method;

/// Uses the called method as the key, by its full path: `/helloworld.Greeter/SayHello`.
///
/// With this key alone, all clients of a method share one quota. In a tuple, for example with
/// [`PeerIp`](super::PeerIp), each client has one quota per method. To give methods *different*
/// quotas, use [`MethodLimiters`](crate::MethodLimiters).
///
/// The path of a service that does not exist is a key too, so a client can create any number of
/// keys. To prevent that, put the layer around the services that it limits, not around the whole
/// server.
///
/// ```
/// use http::Request;
/// use tollgate::Key;
/// use tollgate_tonic::key::{RpcMethod, RpcService};
/// use tollgate_tower::KeyExtractor;
///
/// let (parts, ()) = Request::post("/helloworld.Greeter/SayHello").body(()).unwrap().into_parts();
/// assert_eq!(RpcMethod.extract(&parts).unwrap(), Some(Key::new("/helloworld.Greeter/SayHello")));
/// assert_eq!(RpcService.extract(&parts).unwrap(), Some(Key::new("helloworld.Greeter")));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RpcMethod;

/// Uses the called service as the key, by its full name: `helloworld.Greeter`.
///
/// The remarks on [`RpcMethod`] apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct RpcService;

impl KeyExtractor for RpcMethod {
    fn extract(&self, parts: &Parts) -> Extraction {
        called(parts).map(|_| Some(Key::new(parts.uri.path())))
    }
}

impl KeyExtractor for RpcService {
    fn extract(&self, parts: &Parts) -> Extraction {
        called(parts).map(|(service, _)| Some(Key::new(service)))
    }
}

/// Returns the called service and method.
fn called(parts: &Parts) -> Result<(&str, &str), KeyError> {
    if parts.extensions.get::<PathUnknown>().is_some() {
        return Err(KeyError::misconfigured(
            "interceptors and handlers cannot read the method of a call: use this key extractor in a layer",
        ));
    }
    service_and_method(parts.uri.path())
        .ok_or_else(|| KeyError::missing("the path of the call is not /package.Service/Method"))
}
