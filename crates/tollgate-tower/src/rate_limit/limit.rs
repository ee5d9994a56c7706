use std::{convert::Infallible, fmt, net::IpAddr, sync::Arc, time::Duration};

use foldhash::fast::RandomState;
use http::request::Parts;
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use tollgate::{
    Cost, Costs, Decision, Enforcement, Key, KeySecret, Limiter, PolicySet, Priority,
    reservation::Reservation,
    store::{CheckFuture, StoreFuture},
};

use crate::{
    charge::FinalCost,
    gate::FromParts,
    headers::{HeaderOptions, HeaderWriter},
    key::{KeyError, Networks},
    labels::MetricLabels,
    metrics::{LimitMetrics, LookedUpMetrics},
    rate_limit::{
        reservation::{EstimateOf, ReserveOptions},
        wait,
    },
};

/// Stores a limiter that is the same for all requests.
pub(crate) struct FixedLimit {
    pub(crate) limiter: Limiter,
    pub(crate) profile: Profile,
}

/// Names the limiter of a request.
#[derive(Clone)]
pub(crate) enum LimitRef {
    /// The fixed limiter at this index.
    Fixed(usize),
    /// A limiter that was looked up for the request.
    LookedUp(Limiter, Arc<Profile>),
}

/// Borrows the limiter of a request, and what the layer keeps for its policies.
#[derive(Clone, Copy)]
pub(crate) struct Limit<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) profile: &'a Profile,
}

impl LimitRef {
    /// Borrows the limiter. `fixed` lists the fixed ones.
    #[inline(always)]
    pub(crate) fn get<'a>(&'a self, fixed: &'a [FixedLimit]) -> Limit<'a> {
        match self {
            Self::Fixed(at) => Limit { limiter: &fixed[*at].limiter, profile: &fixed[*at].profile },
            Self::LookedUp(limiter, profile) => Limit { limiter, profile },
        }
    }
}

impl Limit<'_> {
    /// Checks the limiter. Waits for up to `max_wait` where the layer waits instead of denying.
    // Inlined by force: the decision is built where the caller reads it, instead of being copied there.
    #[inline(always)]
    pub(crate) fn check(self, key: &Key, cost: Cost, max_wait: Option<Duration>) -> CheckFuture {
        check(self.limiter, self.profile.has_queue, key, cost, max_wait)
    }

    /// Checks the limiter with a cost for each policy, as [`check`](Self::check) does.
    pub(crate) fn check_costs(self, key: &Key, costs: Costs, max_wait: Option<Duration>) -> CheckFuture {
        check_costs(self.limiter, self.profile.has_queue, key, costs, max_wait)
    }

    /// Reserves an estimate, and waits in the queue of a limiter that has one, for up to `max_wait` if that is set.
    pub(crate) fn reserve(
        self,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
        max_wait: Option<Duration>,
    ) -> StoreFuture<Reservation> {
        let reservation = options.reserve(self.limiter, key, estimate, max_wait);
        if !self.profile.has_queue {
            return reservation;
        }
        let is_in_process = self.limiter.is_in_process();
        StoreFuture::pending(async move { wait::leave_queue_reserved(reservation.await?, is_in_process).await })
    }

    /// Looks whether the costs fit, and charges nothing then. Costs that do not fit are checked, which denies them
    /// with the exact time to retry.
    pub(crate) fn look_or_check(self, key: &Key, costs: Costs, max_wait: Option<Duration>) -> CheckFuture {
        let look = match self.limiter.check_key(key, Cost::ZERO).into_ready() {
            Ok(Ok(look)) if !has_room(&look, &costs) => return self.check_costs(key, costs, max_wait),
            Ok(result) => return StoreFuture::ready(result),
            Err(look) => look,
        };
        let (limiter, has_queue, key) = (self.limiter.clone(), self.profile.has_queue, key.clone());
        StoreFuture::pending(async move {
            let look = look.await?;
            if has_room(&look, &costs) {
                return Ok(look);
            }
            check_costs(&limiter, has_queue, &key, costs, max_wait).await
        })
    }
}

#[inline(always)]
fn check(limiter: &Limiter, has_queue: bool, key: &Key, cost: Cost, max_wait: Option<Duration>) -> CheckFuture {
    match max_wait {
        Some(max_wait) => wait::check_or_wait(limiter, key.clone(), cost, max_wait),
        None if has_queue => wait::check_and_queue(limiter, key.clone(), cost),
        None => limiter.check_key(key, cost),
    }
}

fn check_costs(limiter: &Limiter, has_queue: bool, key: &Key, costs: Costs, max_wait: Option<Duration>) -> CheckFuture {
    match max_wait {
        Some(max_wait) => wait::check_or_wait(limiter, key.clone(), costs, max_wait),
        None if has_queue => wait::check_and_queue(limiter, key.clone(), costs),
        None => limiter.check_costs(key.clone(), costs),
    }
}

/// Returns whether every policy has the units left, within the share of the priority. A policy without a cost has not: the
/// check returns the error.
fn has_room(look: &Decision, costs: &Costs) -> bool {
    look.states().all(|state| {
        let burst = state.policy().quota().burst();
        let kept = burst - costs.priority().units_of(burst);
        costs.cost_of(state.policy().name()).is_some_and(|cost| state.remaining() >= cost.units().saturating_add(kept))
    })
}

impl fmt::Debug for FixedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.fmt(f)
    }
}

/// Stores the headers and the metrics of the decisions by one policy set.
pub(crate) struct Profile {
    pub(crate) headers: HeaderWriter,
    pub(crate) metrics: LimitMetrics,
    pub(crate) has_queue: bool,
}

impl Profile {
    pub(crate) fn new(policies: &PolicySet, headers: &Arc<HeaderOptions>, metrics: LimitMetrics) -> Self {
        Self { headers: HeaderWriter::new(headers, policies), metrics, has_queue: wait::has_queue(policies) }
    }
}

/// Keeps the profiles of policy sets that are looked up.
///
/// A profile belongs to the content of a set, so tenants with equal policies share one.
pub(crate) struct Profiles {
    cache: Cache<PolicySet, Arc<Profile>, UnitWeighter, RandomState>,
    metrics: LookedUpMetrics,
}

/// Bounds the profiles. A service may have a policy set for each of its tenants.
const MAX_PROFILES: usize = 1024;

impl Profiles {
    pub(crate) fn new() -> Self {
        Self {
            cache: Cache::with(
                MAX_PROFILES,
                MAX_PROFILES as u64,
                UnitWeighter,
                RandomState::default(),
                DefaultLifecycle::default(),
            ),
            metrics: LookedUpMetrics::default(),
        }
    }

    /// Returns the profile of a set.
    pub(crate) fn of(&self, policies: &PolicySet, headers: &Arc<HeaderOptions>, labels: &MetricLabels) -> Arc<Profile> {
        if let Some(profile) = self.cache.get(policies) {
            return profile;
        }
        let create =
            || Ok::<_, Infallible>(Arc::new(Profile::new(policies, headers, self.metrics.of(policies, labels))));
        let Ok(profile) = self.cache.get_or_insert_with(policies, create);
        profile
    }
}

/// Stores the options of a layer. Closures are boxed, so that they do not appear in the type of the layer.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) cost: Option<CostOf>,
    /// Is a part of the cost once the layer is built.
    pub(crate) priority: Option<FromParts<Priority>>,
    pub(crate) final_cost: Option<FinalCost>,
    /// Is true when a request is charged after the response and not before.
    pub(crate) charges_after: bool,
    pub(crate) wait: Option<Duration>,
    pub(crate) headers: Arc<HeaderOptions>,
    pub(crate) partition_secret: Option<KeySecret>,
    pub(crate) networks: Option<Box<NetworkOptions>>,
    pub(crate) enforcement: Enforcement,
    pub(crate) exposes_decisions: bool,
    pub(crate) rpc_name: Option<RpcNameOf>,
    pub(crate) request_limiter: Option<RequestLimiterSource>,
}

/// Stores the lists of networks, and how the address of a request is found.
pub(crate) struct NetworkOptions {
    pub(crate) networks: Networks,
    pub(crate) address: FromParts<Result<IpAddr, KeyError>>,
}

impl Options {
    /// Returns whether a request with this key is only counted.
    #[inline]
    pub(crate) fn is_shadow(&self, key: &Key) -> bool {
        !self.enforcement.applies_to(key)
    }

    /// Returns whether a request whose key is not known passes. It does until the limit is enforced for all keys.
    pub(crate) fn is_shadow_without_key(&self) -> bool {
        self.enforcement.percent() < 100
    }

    /// Makes the priority a part of the cost.
    pub(crate) fn rank(&mut self) {
        let Some(priority) = self.priority.take() else { return };
        self.cost = Some(match self.cost.take() {
            None => CostOf::Each(Box::new(move |parts| Costs::new(Cost::ONE).with_priority(priority(parts)))),
            Some(CostOf::One(cost)) => {
                CostOf::Each(Box::new(move |parts| Costs::new(cost(parts)).with_priority(priority(parts))))
            }
            Some(CostOf::Each(costs)) => {
                CostOf::Each(Box::new(move |parts| costs(parts).with_priority(priority(parts))))
            }
            Some(CostOf::Estimate(estimate, options)) => {
                CostOf::Estimate(Box::new(move |parts| estimate(parts).with_priority(priority(parts))), options)
            }
        });
    }

    /// Logs the options that need the one key of a request, for a layer whose requests have several.
    pub(crate) fn warn_without_key(&self) {
        let options = [
            ("wait", self.wait.is_some()),
            ("partition_key", self.partition_secret.is_some()),
            ("expose_request_limiter", self.request_limiter.is_some()),
            ("charge_after", self.charges_after),
            ("costs", matches!(self.cost, Some(CostOf::Each(_)))),
            ("reserve", matches!(self.cost, Some(CostOf::Estimate(..)))),
        ];
        for (option, _) in options.into_iter().filter(|(_, is_set)| *is_set) {
            tracing::warn!(
                code = "TOLLGATE-NO-KEY",
                option,
                "the option has no effect on requests that several limiters decide, because they have no single key"
            );
        }
    }
}

/// Computes the cost of a request from its head.
pub(crate) enum CostOf {
    /// One cost for all policies.
    One(FromParts<Cost>),
    /// A cost for each policy.
    Each(FromParts<Costs>),
    /// An estimate for each policy, which is reserved.
    Estimate(EstimateOf, ReserveOptions),
}

type RpcNameOf = Box<dyn for<'a> Fn(&'a Parts) -> Option<(&'a str, &'a str)> + Send + Sync>;

/// Selects the limiter of a [`RequestLimiter`](crate::RequestLimiter).
#[derive(Clone, Copy)]
pub(crate) enum RequestLimiterSource {
    /// The limiter that admitted the request.
    Same,
    /// The fixed limiter at this index.
    At(usize),
}
