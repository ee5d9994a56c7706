//! The table that gives methods and services limiters of their own, for a layer.
//! A key that contains the method is in `key/method.rs`, labels for a single limiter in
//! `metric_labels.rs`.

use std::collections::HashSet;

use tollgate_tower::{LimiterSource, TieredLimiters};

use crate::{
    metric_labels::metric_labels,
    path::{checked_method, checked_method_or_service, checked_service, service_and_method},
};

/// A table that gives methods and services limiters of their own.
///
/// A call is limited by the limiter of its method. If the method has none, the limiter of its
/// service applies, and otherwise the limiter given to [`new`](Self::new).
///
/// Each limiter may be any [`LimiterSource`]: a [`Limiter`](tollgate::Limiter), a
/// [`LimiterHandle`](tollgate::LimiterHandle) whose policies change while the server runs, or the
/// limits of tenants.
///
/// **Give each policy a name of its own.** Two limiters on one store share a counter when their
/// policies have the same name.
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
///     // A stream spends from the quota of the service and from a quota of its own.
///     .method("/helloworld.Greeter/SayHelloStream", Limiter::new(store, [GREETER, STREAMS]))
///     .exempt("grpc.health.v1.Health");
/// let layer = tollgate_tonic::layer(methods, PeerIp);
/// # let _ = layer;
/// ```
#[must_use = "limiters have no effect until they are given to a layer"]
pub struct MethodLimiters {
    default: LimiterSource,
    /// Methods and services by name. `None` stands for an exemption.
    named: Vec<(String, Option<LimiterSource>)>,
}

impl MethodLimiters {
    /// Creates a table in which `default` limits all calls, until exceptions are added.
    pub fn new(default: impl Into<LimiterSource>) -> Self {
        Self {
            default: default.into(),
            named: Vec::new(),
        }
    }

    /// Sets the limiter of one method, given by its path: `/package.Service/Method`.
    ///
    /// # Panics
    ///
    /// Panics when the path has another form.
    pub fn method(self, method: impl Into<String>, limiter: impl Into<LimiterSource>) -> Self {
        self.add(checked_method(method.into()), Some(limiter.into()))
    }

    /// Sets the limiter of one service, given by its full name: `package.Service`.
    ///
    /// # Panics
    ///
    /// Panics when the name is empty or contains a slash.
    pub fn service(self, service: impl Into<String>, limiter: impl Into<LimiterSource>) -> Self {
        self.add(checked_service(service.into()), Some(limiter.into()))
    }

    /// Exempts a method (`/package.Service/Method`) or a service (`package.Service`) from every
    /// limit.
    ///
    /// # Panics
    ///
    /// Panics when the name is neither a method nor a service.
    pub fn exempt(self, method_or_service: impl Into<String>) -> Self {
        self.add(checked_method_or_service(method_or_service.into()), None)
    }

    fn add(mut self, name: String, limiter: Option<LimiterSource>) -> Self {
        self.named.push((name, limiter));
        self
    }
}

impl From<MethodLimiters> for LimiterSource {
    fn from(methods: MethodLimiters) -> Self {
        let limited = methods
            .named
            .iter()
            .filter(|(_, limiter)| limiter.is_some());
        let labels = metric_labels(limited.map(|(name, _)| name.as_str()));
        let names: HashSet<String> = methods.named.iter().map(|(name, _)| name.clone()).collect();
        let tiers = TieredLimiters::new(methods.default).by(move |parts| {
            let path = parts.uri.path();
            let (service, _) = service_and_method(path)?;
            names.get(path).or_else(|| names.get(service)).cloned()
        });
        let tiers = methods
            .named
            .into_iter()
            .fold(tiers, |tiers, (name, limiter)| match limiter {
                Some(limiter) => tiers.tier(name, limiter),
                None => tiers.exempt(name),
            });
        Self::from(tiers).with_metric_labels(labels)
    }
}

tollgate::debug_fields! { MethodLimiters: default, named }
