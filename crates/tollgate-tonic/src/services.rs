//! Predicates that select the calls of services.
//! They are for options that exempt calls. Limits by service are in `method_limiters.rs`.

use std::collections::HashSet;

use http::request::Parts;

use crate::path::{checked_service, service_and_method};

/// Returns a predicate that selects the calls of the named services.
///
/// Pass the predicate for example to [`exempt`](tollgate_tower::RateLimitBuilder::exempt). Name a
/// service by its full name: `helloworld.Greeter`. The code that tonic generates has the name in
/// the constant `SERVICE_NAME`.
///
/// # Panics
///
/// Panics when a name is empty or contains a slash.
///
/// # Examples
///
/// ```
/// use http::Request;
///
/// let is_greeting = tollgate_tonic::services(["helloworld.Greeter"]);
/// let (greeting, ()) = Request::post("/helloworld.Greeter/SayHello").body(()).unwrap().into_parts();
/// assert!(is_greeting(&greeting));
/// let (other, ()) = Request::post("/helloworld.Other/SayHello").body(()).unwrap().into_parts();
/// assert!(!is_greeting(&other));
/// ```
pub fn services<N: Into<String>>(
    services: impl IntoIterator<Item = N>,
) -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    let services: HashSet<String> = services
        .into_iter()
        .map(|name| checked_service(name.into()))
        .collect();
    move |parts| {
        service_and_method(parts.uri.path()).is_some_and(|(service, _)| services.contains(service))
    }
}

/// Returns a predicate that selects the calls of the health service and of the reflection services.
///
/// Load balancers and tools make such calls. Without an exemption they use up the quota of their
/// key.
pub fn health_and_reflection() -> impl Fn(&Parts) -> bool + Clone + Send + Sync + 'static {
    services([
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ])
}
