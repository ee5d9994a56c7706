use std::fmt;

use http::request::Parts;
use tollgate::{Cost, StoreFuture};

use super::decision::JointDecision;
use crate::key::KeyError;

/// Decides requests to which several limiters and keys apply at once.
///
/// [`LimiterSource::from_decider`](crate::LimiterSource::from_decider) makes a source of one. The rules of `tollgate-rules`
/// are one: a request has a limit for each of its descriptors. Use a [`Limiter`](tollgate::Limiter) with several policies
/// where one key is enough: it decides all of them in one step.
///
/// ```
/// use http::{Request, Response, request::Parts};
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota, StoreFuture};
/// use tollgate_tower::{
///     JointDecision, JointFuture, LimiterSource, RateLimitLayer, RequestDecider,
///     key::{Global, KeyError},
/// };
/// use tower::{Layer, ServiceExt, service_fn};
///
/// /// Limits the requests of each host, and all requests of the service.
/// #[derive(Debug)]
/// struct HostAndService {
///     hosts: Limiter,
///     service: Limiter,
/// }
///
/// impl RequestDecider for HostAndService {
///     fn decide(&self, parts: &Parts, cost: Cost) -> Result<JointFuture, KeyError> {
///         let host = parts.uri.host().ok_or(KeyError::missing("the request names no host"))?.to_owned();
///         let (hosts, service) = (self.hosts.clone(), self.service.clone());
///         Ok(StoreFuture::pending(async move {
///             let all = service.check_cost("all", cost).await?;
///             if all.is_denied() {
///                 return Ok(Some(JointDecision::denied().with(service, "all".into(), all)));
///             }
///             let of_host = hosts.check_cost(host.clone(), cost).await?;
///             if of_host.is_denied() {
///                 // What the request has spent elsewhere is returned.
///                 service.refund_decision("all", &all, cost).await?;
///                 return Ok(Some(JointDecision::denied().with(hosts, host.into(), of_host)));
///             }
///             let both = JointDecision::allowed().with(service, "all".into(), all).with(hosts, host.into(), of_host);
///             Ok(Some(both))
///         }))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let store = MemoryStore::new();
/// let decider = HostAndService {
///     hosts: Limiter::new(store.clone(), Policy::fixed_window("host", Quota::per_day(1))),
///     service: Limiter::new(store, Policy::fixed_window("service", Quota::per_day(100))),
/// };
/// let service = RateLimitLayer::new(LimiterSource::from_decider(decider), Global)
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
///
/// let request = || Request::get("http://one.example.com/").body(()).unwrap();
/// let allowed = service.clone().oneshot(request()).await.unwrap();
/// assert_eq!(allowed.headers()["ratelimit-policy"], r#""service";q=100;w=86400, "host";q=1;w=86400"#);
/// let denied = service.oneshot(request()).await.unwrap();
/// assert_eq!(denied.status(), 429);
/// assert!(denied.body().contains(r#""violated-policies":["host"]"#));
/// # }
/// ```
pub trait RequestDecider: fmt::Debug + Send + Sync + 'static {
    /// Decides the request with this head. `None` when no limit applies to it.
    ///
    /// `cost` is what the layer charges for the request. An error of the future is answered as the error of a limiter:
    /// with 413 for a cost that never fits, and with 503 otherwise.
    ///
    /// # Errors
    ///
    /// Fails when the request has no key: see [`KeyError`].
    fn decide(&self, parts: &Parts, cost: Cost) -> Result<JointFuture, KeyError>;
}

/// Resolves to the decision of a [`RequestDecider`].
pub type JointFuture = StoreFuture<Option<JointDecision>>;
