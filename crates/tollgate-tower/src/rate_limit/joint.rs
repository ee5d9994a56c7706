//! Requests that several limiters and keys decide together.

use std::{fmt, time::Duration};

use http::request::Parts;
use tollgate::{Cost, Costs, Decision, Enforcement, Error, Key, Limiter, Priority, store::StoreFuture};

use crate::{key::KeyError, rate_limit::wait, rejection::Reason};

/// Decides requests to which several limiters and keys apply at once.
///
/// [`LimiterSource::from_decider`](crate::LimiterSource::from_decider) gives a decider to a layer. The rules of
/// `tollgate-rules` are a decider: a request has a limit for each of its descriptors. When one key is enough, use a
/// [`Limiter`](tollgate::Limiter) with several policies instead: it decides all of them in one step.
///
/// ```
/// use http::{Request, Response, request::Parts};
/// use tollgate::{Limiter, MemoryStore, Policy, Quota, store::StoreFuture};
/// use tollgate_tower::{
///     JointCheck, JointDecision, JointFuture, LimiterSource, RateLimitLayer, RequestDecider,
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
///     fn decide(&self, parts: &Parts, check: JointCheck) -> Result<JointFuture, KeyError> {
///         let host = parts.uri.host().ok_or(KeyError::missing("the request names no host"))?.to_owned();
///         let (hosts, service) = (self.hosts.clone(), self.service.clone());
///         Ok(StoreFuture::pending(async move {
///             let all = service.check("all").cost(check.costs()).await?;
///             if all.is_denied() && check.is_enforced(&"all".into()) {
///                 return Ok(Some(JointDecision::denied().with(service, "all".into(), all)));
///             }
///             let of_host = hosts.check(host.clone()).cost(check.costs()).await?;
///             if of_host.is_denied() && check.is_enforced(&host.clone().into()) {
///                 // What the request has spent elsewhere is returned.
///                 service.refund("all", check.cost()).of(&all).await?;
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
    /// Decides on the request with this head. The future resolves to `None` when no limit applies to the request.
    ///
    /// `check` is what the layer asks for. When the future fails, the response is 413 for a cost that never fits, 500
    /// for [`ErrorKind::Config`](tollgate::ErrorKind::Config), and 503 otherwise.
    ///
    /// # Errors
    ///
    /// Fails when the request has no key: see [`KeyError`].
    fn decide(&self, parts: &Parts, check: JointCheck) -> Result<JointFuture, KeyError>;
}

/// Tells a [`RequestDecider`] what its layer asks for: the cost and the priority of a request, and the keys whose
/// limits it enforces.
#[derive(Clone, Debug)]
pub struct JointCheck {
    cost: Cost,
    priority: Priority,
    /// `None` for all keys.
    enforcement: Option<Enforcement>,
}

impl JointCheck {
    /// Keeps the share that is in force, so that one share decides the whole request.
    pub(crate) fn new(cost: Cost, priority: Priority, enforcement: Option<&Enforcement>) -> Self {
        let enforcement = enforcement.map(|enforcement| Enforcement::share(enforcement.percent()));
        Self { cost, priority, enforcement }
    }

    /// Returns the [cost](crate::RateLimitBuilder::cost) of the request.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns the [priority](crate::RateLimitBuilder::priority) of the request.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the cost with the [priority](Self::priority), for the checks.
    #[must_use]
    pub fn costs(&self) -> Costs {
        Costs::new(self.cost).with_priority(self.priority)
    }

    /// Returns whether the limits of a key can deny the request: whether the key belongs to the
    /// [enforced share](crate::RateLimitBuilder::enforcement).
    ///
    /// The limits of any other key are only counted. If they are exceeded, the limits of the other keys are still
    /// checked and charged. Add their decisions as those of enforced keys: the layer hides them from the client.
    #[must_use]
    pub fn is_enforced(&self, key: &Key) -> bool {
        self.enforcement.as_ref().is_none_or(|enforcement| enforcement.applies_to(key))
    }
}

/// Resolves to the decision of a [`RequestDecider`].
pub type JointFuture = StoreFuture<Option<JointDecision>>;

/// A decision by all limits that apply to one request.
///
/// A [`RequestDecider`](crate::RequestDecider) returns it. The layer responds as it does to the decision of one
/// limiter. The header fields list the policies of all decisions, and the wait of a denial is the longest of all.
#[derive(Clone, Debug)]
#[must_use = "a decision that is ignored limits nothing"]
pub struct JointDecision {
    is_allowed: bool,
    decisions: Vec<KeyDecision>,
    /// A key that no wait helps, and why. Boxed, because it is large and rare.
    refused: Option<Box<(Key, Refused)>>,
}

/// Says why no wait helps a key.
#[derive(Clone, Debug)]
pub(crate) enum Refused {
    Forbidden,
    Blocked,
    NeverFits(Error),
}

/// Holds one decision, with all that a refund needs.
#[derive(Clone, Debug)]
pub(crate) struct KeyDecision {
    pub(crate) limiter: Limiter,
    pub(crate) key: Key,
    pub(crate) decision: Decision,
    /// Is true when the decision is only counted.
    pub(crate) is_shadow: bool,
    /// The layer enforces the limit for the key.
    pub(crate) is_enforced: bool,
}

impl JointDecision {
    /// Creates a decision that lets the request pass.
    pub fn allowed() -> Self {
        Self { is_allowed: true, decisions: Vec::new(), refused: None }
    }

    /// Creates a decision that denies the request.
    ///
    /// Add only the decisions that deny the request, because the response lists them. A denial without decisions means
    /// that waiting does not help: its response has no `Retry-After`. It belongs to no key, so it passes until all keys
    /// are [enforced](crate::RateLimitBuilder::enforcement). [`blocked`](Self::blocked) has a key.
    pub fn denied() -> Self {
        Self { is_allowed: false, decisions: Vec::new(), refused: None }
    }

    /// Creates a decision that rejects the request with 403, because its client is never served.
    ///
    /// In shadow mode the request passes. `key` is the key of the client: it decides whether the client belongs to the
    /// [enforced share](crate::RateLimitBuilder::enforcement).
    pub fn forbidden(key: Key) -> Self {
        Self { refused: Some(Box::new((key, Refused::Forbidden))), ..Self::denied() }
    }

    /// Creates a decision that denies the request, because a limit of `key` has an amount of 0.
    ///
    /// Its response has no `Retry-After`. In shadow mode the request passes.
    pub fn blocked(key: Key) -> Self {
        Self { refused: Some(Box::new((key, Refused::Blocked))), ..Self::denied() }
    }

    /// Creates a decision that rejects the request with 413, because a limit of `key` never has as many units.
    ///
    /// `error` is that of the [check](tollgate::ErrorKind::CostExceedsBurst). In shadow mode the request passes.
    pub fn never_fits(key: Key, error: Error) -> Self {
        Self { refused: Some(Box::new((key, Refused::NeverFits(error)))), ..Self::denied() }
    }

    /// Returns a key that no wait helps, and why.
    pub(crate) fn refused(&self) -> Option<(&Key, Reason<'_>)> {
        let (key, why) = self.refused.as_deref()?;
        let reason = match why {
            Refused::Forbidden => Reason::Forbidden,
            Refused::Blocked => Reason::Blocked,
            Refused::NeverFits(error) => Reason::CostNeverFits(error),
        };
        Some((key, reason))
    }

    /// Adds the decision of a limiter for a key. A [final cost](crate::RateLimitBuilder::final_cost) refunds units of
    /// it.
    pub fn with(self, limiter: Limiter, key: Key, decision: Decision) -> Self {
        self.push(limiter, key, decision, false)
    }

    /// Adds the decision of a limit that is tried out: it is counted in the metrics, and does not change the response. A
    /// [final cost](crate::RateLimitBuilder::final_cost) refunds units of it, too.
    pub fn with_shadow(self, limiter: Limiter, key: Key, decision: Decision) -> Self {
        self.push(limiter, key, decision, true)
    }

    fn push(mut self, limiter: Limiter, key: Key, decision: Decision, is_shadow: bool) -> Self {
        self.decisions.push(KeyDecision { limiter, key, decision, is_shadow, is_enforced: true });
        self
    }

    /// Notes for which keys the layer enforces the limit.
    pub(crate) fn enforce(&mut self, applies: impl Fn(&Key) -> bool) {
        self.decisions.iter_mut().for_each(|part| part.is_enforced = applies(&part.key));
    }

    /// Returns whether the request may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Returns the decisions in the order in which they were added, without those of
    /// [`with_shadow`](Self::with_shadow).
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.parts().map(|part| &part.decision)
    }

    /// Returns all decisions, also those that are only counted.
    pub(crate) fn all(&self) -> &[KeyDecision] {
        &self.decisions
    }

    /// Returns the decisions that have a part in the answer.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &KeyDecision> {
        self.decisions.iter().filter(|part| !part.is_shadow)
    }

    /// Returns the decisions that have a part in the answer of the layer.
    pub(crate) fn enforced(&self) -> impl Iterator<Item = &Decision> {
        self.parts().filter(|part| part.is_enforced).map(|part| &part.decision)
    }

    /// Returns how long an allowed request waits for its turn in all [queues](tollgate::Algorithm::LeakyBucket). A limit
    /// that is tried out delays nobody.
    pub(crate) fn delay(&self) -> Duration {
        if !self.is_allowed {
            return Duration::ZERO;
        }
        self.enforced().map(Decision::delay).max().unwrap_or_default()
    }
}

/// Returns the decision when the request has left the queues of the limits that the layer enforces for it.
pub(crate) fn after_queues(decision: JointFuture, enforcement: Option<Enforcement>) -> JointFuture {
    let enforced = move |joint: Option<JointDecision>| {
        let mut joint = joint?;
        if let Some(enforcement) = &enforcement {
            joint.enforce(|key| enforcement.applies_to(key));
        }
        Some(joint)
    };
    match decision.into_ready().map(|result| result.map(&enforced)) {
        Ok(Ok(Some(joint))) if !joint.delay().is_zero() => StoreFuture::pending(leave(joint)),
        Ok(result) => StoreFuture::ready(result),
        Err(pending) => StoreFuture::pending(async move {
            match enforced(pending.await?) {
                Some(joint) => leave(joint).await,
                None => Ok(None),
            }
        }),
    }
}

async fn leave(joint: JointDecision) -> Result<Option<JointDecision>, Error> {
    let delay = joint.delay();
    if !delay.is_zero() {
        let slots = joint.parts().map(|part| (part.limiter.clone(), part.key.clone(), part.decision.clone()));
        wait::sit_out(delay, slots.collect()).await;
    }
    Ok(Some(joint))
}
