//! Which calls an option is for.

use std::collections::HashSet;

use http::request::Parts;

use crate::path::{checked_service, service_and_method};

/// Calls of these services, each by its full name: `helloworld.Greeter`. The generated code holds
/// it in `SERVICE_NAME`. For the option [`exempt`](tollgate_tower::RateLimitBuilder::exempt).
///
/// ```
/// use http::Request;
///
/// let is_greeting = tollgate_tonic::services(["helloworld.Greeter"]);
/// let (parts, ()) = Request::post("/helloworld.Greeter/SayHello").body(()).unwrap().into_parts();
/// assert!(is_greeting(&parts));
/// ```
///
/// # Panics
///
/// When a name is empty or contains a slash.
pub fn services<N: Into<String>>(
    services: impl IntoIterator<Item = N>,
) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    let services: HashSet<String> = services.into_iter().map(|name| checked_service(name.into())).collect();
    move |parts| service_and_method(parts.uri.path()).is_some_and(|(service, _)| services.contains(service))
}

/// Calls of the health and the reflection service, which load balancers and tools make.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{health_and_reflection, key::PeerIp};
///
/// # let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
/// let layer = tollgate_tonic::builder(limiter, PeerIp::new()).exempt(health_and_reflection()).build();
/// # let _ = layer;
/// ```
pub fn health_and_reflection() -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    services([
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ])
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parts(path: &str) -> Parts {
        Request::post(path).body(()).unwrap().into_parts().0
    }

    #[test]
    fn what_is_not_named_does_not_match() {
        assert!(!services(["a.B"])(&parts("/a.Bc/D")));
        assert!(!services(["a.B"])(&parts("/a.B")));
        assert!(health_and_reflection()(&parts("/grpc.health.v1.Health/Check")));
        assert!(health_and_reflection()(&parts("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")));
        assert!(!health_and_reflection()(&parts("/grpc.health.v1.Healthy/Check")));
    }

    #[test]
    #[should_panic(expected = "a service must be like package.Service, got \"/a.B\"")]
    fn a_service_is_written_without_slash() {
        let _ = services(["/a.B"]);
    }
}
