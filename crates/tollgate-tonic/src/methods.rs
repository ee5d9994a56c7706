use std::{collections::HashSet, fmt};

use tollgate::Limiter;
use tollgate_tower::{LimiterSource, TieredLimiters};

use crate::{
    labels::metric_labels,
    path::{checked_method, checked_method_or_service, checked_service, service_and_method},
};

/// Limiters by method and service: all quotas of a server in one place.
///
/// A call is limited by the limiter of its method, else by that of its service, else by the one
/// that [`new`](Self::new) takes. Policies that should count apart need names of their own: limiters
/// whose policies have the same name, on one store, share the counter of a caller.
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tonic::{MethodLimiters, key::PeerIp};
///
/// const OTHERS: Policy = Policy::token_bucket("others", Quota::per_second(50));
/// const GREETER: Policy = Policy::token_bucket("greeter", Quota::per_second(5).with_burst(10));
/// const STREAMS: Policy = Policy::token_bucket("streams", Quota::per_minute(6));
///
/// let store = MemoryStore::new();
/// let methods = MethodLimiters::new(Limiter::new(store.clone(), OTHERS))
///     .service("helloworld.Greeter", Limiter::new(store.clone(), GREETER))
///     // A stream counts as a call of the service, and against a quota of its own.
///     .method("/helloworld.Greeter/SayHelloStream", Limiter::new(store, [GREETER, STREAMS]))
///     .exempt("grpc.health.v1.Health");
/// let layer = tollgate_tonic::layer(methods, PeerIp::new());
/// # let _ = layer;
/// ```
#[must_use = "limiters limit nothing by themselves"]
pub struct MethodLimiters {
    others: Limiter,
    of: Vec<(String, Option<Limiter>)>,
}

impl MethodLimiters {
    /// `others` limits what is not named.
    pub fn new(others: Limiter) -> Self {
        Self { others, of: Vec::new() }
    }

    /// The limiter of one method, which is written as its path: `/package.Service/Method`.
    ///
    /// # Panics
    ///
    /// When the path has another form.
    pub fn method(self, method: impl Into<String>, limiter: Limiter) -> Self {
        let method = checked_method(method.into());
        self.add(method, Some(limiter))
    }

    /// The limiter of one service, by its full name: `package.Service`.
    ///
    /// # Panics
    ///
    /// When the name is empty or contains a slash.
    pub fn service(self, service: impl Into<String>, limiter: Limiter) -> Self {
        let service = checked_service(service.into());
        self.add(service, Some(limiter))
    }

    /// A method or a service without a limit.
    ///
    /// # Panics
    ///
    /// When it is written as neither.
    pub fn exempt(self, method_or_service: impl Into<String>) -> Self {
        let name = checked_method_or_service(method_or_service.into());
        self.add(name, None)
    }

    fn add(mut self, name: String, limiter: Option<Limiter>) -> Self {
        self.of.push((name, limiter));
        self
    }
}

impl From<MethodLimiters> for LimiterSource {
    fn from(methods: MethodLimiters) -> Self {
        let limited = methods.of.iter().filter(|(_, limiter)| limiter.is_some());
        let labels = metric_labels(limited.map(|(name, _)| name.as_str()));
        let named: HashSet<String> = methods.of.iter().map(|(name, _)| name.clone()).collect();
        let tiers = TieredLimiters::new(methods.others).by(move |parts| {
            let path = parts.uri.path();
            let (service, _) = service_and_method(path)?;
            named.get(path).or_else(|| named.get(service)).cloned()
        });
        let tiers = methods.of.into_iter().fold(tiers, |tiers, (name, limiter)| match limiter {
            Some(limiter) => tiers.tier(name, limiter),
            None => tiers.exempt(name),
        });
        Self::from(tiers).with_metric_labels(labels)
    }
}

impl fmt::Debug for MethodLimiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MethodLimiters").field("others", &self.others).field("of", &self.of).finish()
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{MemoryStore, Policy, Quota};

    use super::*;

    fn limiter() -> Limiter {
        Limiter::new(MemoryStore::new(), Policy::token_bucket("one", Quota::per_minute(1)))
    }

    #[test]
    #[should_panic(expected = "a method must be like /package.Service/Method, got \"SayHello\"")]
    fn a_method_without_its_service_is_a_mistake() {
        let _ = MethodLimiters::new(limiter()).method("SayHello", limiter());
    }

    #[test]
    #[should_panic(expected = "a service must be like package.Service, got \"/a.B\"")]
    fn a_service_is_written_without_slash() {
        let _ = MethodLimiters::new(limiter()).exempt("/a.B");
    }
}
