//! Charges further units for a request that a layer has admitted.
//! When a layer hands it out is in `reply.rs`; messages of a WebSocket are charged with it in
//! `ws/`.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use http::{Request, request::Parts};
use tollgate_core::{
    Cost, Costs, Decision, Error, Key, Limiter, MemoryStore, Policy, PolicySet, Quota, Store,
    store::{Check, CheckFuture},
};

use crate::{
    gate::GateOptions,
    metrics::LabelIndex,
    rate_limit::{
        limits::{Limit, LimitRef, Limits},
        options::Options,
    },
    rejection::Reason,
    rpc::RpcName,
};

/// Charges further units for a request while the service handles it.
///
/// It is a limiter with the key of one request. A layer with
/// [`expose_request_limiter`](crate::RateLimitBuilder::expose_request_limiter) inserts one into the
/// extensions of each request that it admits. Its checks wait as the layer does, are logged and
/// counted as those of the layer, and follow the
/// [`enforcement`](crate::RateLimitBuilder::enforcement) of the layer. They have the
/// [`priority`](crate::RateLimitBuilder::priority) of the request. tollgate-tonic charges each
/// message of a stream with it, and `ws::LimitedSocket` each message of a WebSocket.
///
/// The limiter of an exempt request admits everything. A layer that exempts a request does not
/// replace the limiter that a layer around it has inserted.
///
/// ```
/// use http::{Request, Response};
/// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
/// use tollgate_tower::{RateLimitLayer, RequestLimiter, key::Header, rejection::Empty};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(100)));
/// let layer = RateLimitLayer::builder(limiter.clone(), Header::new("x-api-key"))
///     .respond_with(Empty)
///     .expose_request_limiter(None)
///     .build();
///
/// // The layer charges one unit for the request. The service charges one more for each row.
/// let service = layer.layer(service_fn(|request: Request<u64>| async move {
///     let limiter = request.extensions().get::<RequestLimiter>().unwrap();
///     let result = limiter.check(Cost::new(*request.body())).await;
///     Ok::<_, std::convert::Infallible>(Response::new(limiter.admits(&result)))
/// }));
/// let request = |rows| Request::builder().header("x-api-key", "acme").body(rows).unwrap();
/// assert!(service.clone().oneshot(request(80)).await.unwrap().into_body());
/// assert!(!service.oneshot(request(80)).await.unwrap().into_body());
/// assert_eq!(limiter.peek("acme").await.unwrap().state("rows").unwrap().remaining(), 18);
/// # }
/// ```
#[derive(Clone)]
pub struct RequestLimiter {
    /// `None` admits everything.
    limited: Option<LimitedRequest>,
    /// `None` waits as the layer does.
    wait: Option<Duration>,
}

/// Stores what the checks of one request need.
#[derive(Clone)]
struct LimitedRequest {
    limits: Arc<Limits>,
    limit: LimitRef,
    key: Key,
    /// Has the rank of the request, and no cost.
    rank: Costs,
    labels: LabelIndex,
    rpc: RpcName<Box<str>>,
}

impl LimitedRequest {
    fn limit(&self) -> Limit<'_> {
        self.limit.get(&self.limits.fixed)
    }
}

/// Decides in place of a limiter, for requests that have none. A cost of zero fits, and spends
/// nothing.
static WITHOUT_LIMIT: LazyLock<(MemoryStore, PolicySet)> = LazyLock::new(|| {
    (
        MemoryStore::new(),
        Policy::token_bucket("exempt", Quota::per_second(1)).into(),
    )
});

impl RequestLimiter {
    /// Admits everything: the limiter of a request that no limit applies to.
    pub(super) const WITHOUT_LIMIT: Self = Self {
        limited: None,
        wait: None,
    };

    /// Creates a request limiter from a limiter and a key, for a service without a layer.
    ///
    /// Its checks are logged and counted as by a layer with the default options.
    ///
    /// ```
    /// use tollgate::{Cost, Limiter, MemoryStore, Policy, Quota};
    /// use tollgate_tower::RequestLimiter;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let limiter = Limiter::new(MemoryStore::new(), Policy::fixed_window("rows", Quota::per_day(100)));
    /// let rows = RequestLimiter::new(limiter, "acme");
    /// let result = rows.check(Cost::new(60)).await;
    /// assert!(rows.admits(&result));
    /// let result = rows.check(Cost::new(60)).await;
    /// assert!(!rows.admits(&result));
    /// # }
    /// ```
    #[must_use]
    pub fn new(limiter: Limiter, key: impl Into<Key>) -> Self {
        let gate = GateOptions::new().respond_with(());
        let limits = Arc::new(Limits::new(limiter.into(), Options::default(), gate));
        let (none, ()) = Request::new(()).into_parts();
        let labels = LabelIndex::of(&none, &limits.gate.labels);
        Self::of(&limits, LimitRef::Fixed(0), key.into(), labels, &none)
    }

    /// Creates the limiter of a request with this key and these labels.
    // Not inlined: few layers hand it out, and the others would pay for the larger stack frame.
    #[inline(never)]
    pub(super) fn of(
        limits: &Arc<Limits>,
        limit: LimitRef,
        key: Key,
        labels: LabelIndex,
        parts: &Parts,
    ) -> Self {
        // The names appear in debug logs alone, so they are copied only for those.
        let is_logged = tracing::enabled!(tracing::Level::DEBUG);
        let rpc = if is_logged {
            limits.rpc_name(parts).into_owned()
        } else {
            RpcName::NONE
        };
        let limiter = limit.get(&limits.fixed).limiter;
        let rank = limits.ranked(Costs::new(Cost::ZERO), parts, limiter);
        let limited = LimitedRequest {
            limits: Arc::clone(limits),
            limit,
            key,
            rank,
            labels,
            rpc,
        };
        Self {
            limited: Some(limited),
            wait: None,
        }
    }

    /// Sets how long a check waits for quota at most, in place of the
    /// [wait](crate::RateLimitBuilder::wait) of the layer.
    #[must_use]
    pub fn wait(mut self, max: Duration) -> Self {
        self.wait = Some(max);
        self
    }

    /// Returns the limiter that is checked. `None` when no limit applies to the request.
    #[must_use]
    pub fn limiter(&self) -> Option<&Limiter> {
        Some(self.limited.as_ref()?.limit().limiter)
    }

    /// Returns the key of the request. `None` when no limit applies to the request.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.limited.as_ref().map(|limited| &limited.key)
    }

    /// Charges `cost` more units, or none when they do not fit.
    ///
    /// If no limit applies to the request, the decision allows everything and spends nothing. Its
    /// only policy is named `exempt`.
    ///
    /// Waits for quota for as long as the layer [does](crate::RateLimitBuilder::wait), or as
    /// [`wait`](Self::wait) says. Pass the result to [`admits`](Self::admits).
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::check`].
    pub fn check(&self, cost: Cost) -> CheckFuture {
        let Some(limited) = &self.limited else {
            let (store, policies) = &*WITHOUT_LIMIT;
            return store.check(Check::new(policies, &Key::new("exempt"), Cost::ZERO));
        };
        let (limits, key, rank) = (&limited.limits, &limited.key, &limited.rank);
        let costs = Costs::new(cost)
            .with_priority(rank.priority())
            .with_customer(rank.customer());
        let (limit, wait) = (limited.limit(), self.wait.or(limits.options.wait));
        limit.check(key, costs, wait, limits.is_shadow(key))
    }

    /// Returns whether the request may go on after a [`check`](Self::check).
    ///
    /// Logs and counts the result as the layer does. In [shadow
    /// mode](crate::RateLimitBuilder::shadow) the request may always go on.
    #[must_use = "a request that is not admitted must not go on"]
    pub fn admits(&self, result: &Result<Decision, Error>) -> bool {
        let Some(limited) = &self.limited else {
            return true;
        };
        let (limits, labels) = (&limited.limits, limited.labels);
        let (rpc, is_shadow) = (limited.rpc.as_deref(), limits.is_shadow(&limited.key));
        let reason = match result {
            Ok(decision) => {
                let profile = limited.limit().profile;
                limits.record_decision(profile, decision, labels, &rpc, is_shadow);
                if decision.is_allowed() {
                    return true;
                }
                Reason::of_denial(decision)
            }
            Err(error) => Reason::of_error(error),
        };
        if !is_shadow {
            limits.record_rejection(reason, labels, &rpc);
        }
        is_shadow
    }
}

tollgate_core::debug_fields! { RequestLimiter: limiter = .limiter(), .. }
