use std::collections::{BTreeSet, HashMap};

use tollgate_tower::MetricLabels;

use crate::path::{checked_service, service_and_method};

/// The labels `rpc_service` and `rpc_method` of the metrics, for these methods
/// (`/package.Service/Method`) and services (`package.Service`).
///
/// A client may call what it likes, so only what is named here is a label: a method of a service of
/// which others are named is `other`, and so is a service of which none is. A server whose quotas
/// are [`MethodLimiters`](crate::MethodLimiters) has the labels of that table without being told.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{key::PeerIp, labels};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
/// let layer = tollgate_tonic::builder(limiter, PeerIp::new())
///     .metric_labels(metric_labels(["/helloworld.Greeter/SayHello", "/helloworld.Greeter/SayHelloStream"]))
///     .build();
/// # let _ = layer;
/// ```
///
/// # Panics
///
/// When a name is written as neither.
pub fn metric_labels<N: Into<String>>(names: impl IntoIterator<Item = N>) -> MetricLabels {
    let mut named = BTreeSet::new();
    for name in names {
        let name = name.into();
        match service_and_method(&name) {
            Some((service, method)) => {
                named.insert((service.to_owned(), Some(method.to_owned())));
                named.insert((service.to_owned(), None));
            }
            None => {
                named.insert((checked_service(name), None));
            }
        }
    }
    let mut places: HashMap<String, Service> = HashMap::new();
    for (at, (service, method)) in named.iter().enumerate() {
        let place = places.entry(service.clone()).or_default();
        match method {
            Some(method) => drop(place.methods.insert(method.clone(), at)),
            None => place.others = at,
        }
    }
    let values = named.into_iter().map(|(service, method)| [service, method.unwrap_or_else(|| "other".to_owned())]);
    MetricLabels::new(["rpc_service", "rpc_method"], values, move |parts| {
        let (service, method) = service_and_method(parts.uri.path())?;
        let service = places.get(service)?;
        Some(service.methods.get(method).copied().unwrap_or(service.others))
    })
}

/// The places of the methods of a service that are named, and of the others.
#[derive(Default)]
struct Service {
    methods: HashMap<String, usize>,
    others: usize,
}
