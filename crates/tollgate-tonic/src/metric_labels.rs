//! The labels by which metrics count methods and services: names of a fixed list, so that no client
//! can add one.
//! The series themselves are those of `tollgate_tower`.

use std::collections::{BTreeSet, HashMap};

use tollgate_tower::MetricLabels;

use crate::path::{checked_service, service_and_method};

/// Returns the metric labels `rpc_service` and `rpc_method` for a fixed list of names.
///
/// A name is a method (`/package.Service/Method`) or a service (`package.Service`). A client can
/// call any path, so only these names become labels. A method that is not in the list is labelled
/// `other`, and so is a service that the list does not name.
///
/// Use this function for a layer with a single limiter. [`MethodLimiters`](crate::MethodLimiters)
/// sets the labels itself, for the names in its table that have a limiter.
///
/// # Panics
///
/// Panics when a name is neither a method nor a service.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{key::PeerIp, metric_labels};
///
/// let limiter = Limiter::new(MemoryStore::new(), Policy::token_bucket("burst", Quota::per_second(5)));
/// let layer = tollgate_tonic::builder(limiter, PeerIp)
///     .metric_labels(metric_labels(["/helloworld.Greeter/SayHello", "/helloworld.Greeter/SayHelloStream"]))
///     .build();
/// # let _ = layer;
/// ```
pub fn metric_labels<N: Into<String>>(names: impl IntoIterator<Item = N>) -> MetricLabels {
    // A method of `None` stands for all methods of the service that are not in the list.
    let mut labels = BTreeSet::new();
    for name in names {
        let name = name.into();
        match service_and_method(&name) {
            Some((service, method)) => {
                labels.insert((service.to_owned(), Some(method.to_owned())));
                labels.insert((service.to_owned(), None));
            }
            None => {
                labels.insert((checked_service(name), None));
            }
        }
    }
    let mut services: HashMap<String, ServiceLabels> = HashMap::new();
    for (index, (service, method)) in labels.iter().enumerate() {
        let service = services.entry(service.clone()).or_default();
        match method {
            Some(method) => drop(service.methods.insert(method.clone(), index)),
            None => service.other = index,
        }
    }
    let values = labels
        .into_iter()
        .map(|(service, method)| [service, method.unwrap_or_else(|| "other".to_owned())]);
    MetricLabels::new(["rpc_service", "rpc_method"], values, move |parts| {
        let (service, method) = service_and_method(parts.uri.path())?;
        let service = services.get(service)?;
        Some(
            service
                .methods
                .get(method)
                .copied()
                .unwrap_or(service.other),
        )
    })
}

/// The indices of the labels of one service: one for each listed method, and one for all others.
#[derive(Default)]
struct ServiceLabels {
    methods: HashMap<String, usize>,
    other: usize,
}
