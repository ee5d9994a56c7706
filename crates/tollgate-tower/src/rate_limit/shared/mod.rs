//! Holds what all clones of a layer share: its limiters with what is kept for them, and the way of a request from its key to the
//! verdict.

mod handler;
mod joint;
mod look;
mod reject;
mod reserve;

use std::{
    convert::Infallible,
    fmt,
    ops::ControlFlow::{self, Break, Continue},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use foldhash::fast::RandomState;
use http::request::Parts;
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use tollgate::{
    Cost, Costs, Decision, Error, ErrorKind, Key, Limiter, Policy, PolicySet, Priority,
    limiter::{Limited, LimiterFuture},
    reservation::Reservation,
    store::{CheckFuture, StoreFuture},
};

use crate::{
    Meter,
    charge::{Charge, Charged, Due},
    decisions::Decisions,
    gate::GateOptions,
    headers::{HeaderOptions, HeaderUpdate, HeaderWriter, ResponseDetails, partition_key},
    key::{KeyError, KeyExtractor, NetworkVerdict},
    labels::MetricLabels,
    metrics::{self, LabelIndex, LimitMetrics, LookedUpMetrics},
    outer_layers::{DoubleCountDetector, OuterWait},
    rate_limit::{
        builder::{CostOf, NetworkOptions, Options, RequestLimiterSource},
        handler::{Charger, LimitedRequest, RequestLimiter},
        joint::RequestDecider,
        layer::{Admission, Asked, Extras, RequestContext, Step, Verdict},
        limiters::{LimiterSource, LimiterTable, Lookup, Selector, Target},
        reservation::ReserveOptions,
        wait,
    },
    rejection::{Reason, Respond},
    rpc::RpcName,
};
use reject::reason_of;

/// Stores what all clones of a layer and all of its services share.
pub(crate) struct Shared<K, R> {
    fixed: Vec<FixedLimit>,
    lookups: Vec<Box<dyn Lookup>>,
    deciders: Vec<Box<dyn RequestDecider>>,
    profiles: Profiles,
    options: Options,
    gate: GateOptions<R>,
    key: K,
    selector: Selector,
    double_count: DoubleCountDetector,
}

impl<K, R> Shared<K, R> {
    pub(crate) fn new(limiters: LimiterSource, options: Options, key: K, mut gate: GateOptions<R>) -> Self {
        gate.labels = limiters.labels.unwrap_or_default();
        let LimiterTable { fixed, lookups, deciders } = limiters.limiters;
        let fixed = fixed.into_iter().map(|limiter| {
            let profile = Profile::new(limiter.policies(), &options.headers, LimitMetrics::new(&gate.labels));
            FixedLimit { limiter, profile }
        });
        Self {
            fixed: fixed.collect(),
            lookups,
            deciders,
            profiles: Profiles::new(),
            options,
            gate,
            key,
            selector: limiters.selector,
            double_count: DoubleCountDetector::default(),
        }
    }

    /// Returns the limiters of the layer, and the ways to look limiters up, for `Debug`.
    pub(crate) fn limits(&self) -> impl fmt::Debug {
        let fixed = self.fixed.iter().map(|limit| limit as &dyn fmt::Debug);
        let lookups = self.lookups.iter().map(|lookup| lookup as &dyn fmt::Debug);
        let deciders = self.deciders.iter().map(|decider| decider as &dyn fmt::Debug);
        fixed.chain(lookups).chain(deciders).collect::<Vec<_>>()
    }

    /// Logs the names of policies whose units are set, and which no limiter has. The limits of tenants may have any.
    #[cold]
    fn warn_of_unknown_units(&self) {
        let is_fixed = |name: &str| {
            self.fixed.iter().any(|limit| limit.limiter.policies().iter().any(|policy| policy.name() == name))
        };
        for name in self.options.headers.units.named.iter().map(|(name, _)| name) {
            if self.lookups.is_empty() && !is_fixed(name) && !self.profiles.have(name) {
                tracing::warn!(
                    option = "quota_units",
                    policy = &**name,
                    "the option names a policy that the layer does not have, so its unit stands in no response"
                );
            }
        }
    }

    /// Returns the names of a call, as the log shows them.
    fn rpc_name<'a>(&self, parts: &'a Parts) -> RpcName<&'a str> {
        self.options.rpc_name.as_ref().and_then(|name| name(parts)).map_or(RpcName::NONE, RpcName::new)
    }

    /// Returns whether a request with this key is only counted.
    #[inline]
    fn is_shadow(&self, key: &Key) -> bool {
        self.options.enforcement.as_ref().is_some_and(|enforcement| !enforcement.applies_to(key))
    }

    /// Returns whether a request whose key is not known passes. It does until the limit is enforced for all keys.
    fn is_shadow_without_key(&self) -> bool {
        self.options.enforcement.as_ref().is_some_and(|enforcement| enforcement.percent() < 100)
    }

    /// Counts and logs a decision, which denies nothing in shadow mode.
    #[inline]
    fn record_decision(
        &self,
        profile: &Profile,
        decision: &Decision,
        labels: LabelIndex,
        rpc: &RpcName<&str>,
        is_shadow: bool,
    ) {
        profile.metrics.record_decision(decision, &self.gate.labels, labels, is_shadow);
        if decision.is_denied() {
            tracing::debug!(
                name: "denied",
                policy = decision.binding().map(|state| state.policy().name()),
                shadow = is_shadow,
                rpc.service = rpc.service,
                rpc.method = rpc.method,
                "denied"
            );
        }
    }

    /// Counts and logs that the service is not called.
    fn record_rejection(&self, reason: Reason<'_>, labels: LabelIndex, rpc: &RpcName<&str>) {
        metrics::count_rejection(reason.as_str(), &self.gate.labels, labels);
        // `record_decision` logs denials, because it does so in shadow mode too.
        if !matches!(reason, Reason::Denied(_)) {
            let reason = reason.as_str();
            tracing::debug!(reason, rpc.service = rpc.service, rpc.method = rpc.method, "rejected");
        }
    }

    /// Returns the details of a response to a request with this key.
    #[inline]
    fn details(&self, key: Option<&Key>) -> ResponseDetails {
        let secret = &self.options.partition_secret;
        ResponseDetails {
            jitter: self.gate.jitter(),
            partition_key: secret.as_ref().zip(key).map(|(secret, key)| partition_key(key, secret)),
        }
    }
}

impl<K: KeyExtractor, R> Shared<K, R> {
    /// Checks the limiter that applies to a request.
    // Inlined by force: key and decision are used where they are built, instead of being copied.
    #[inline(always)]
    pub(crate) fn check_request<B>(self: &Arc<Self>, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let target = match self.target(parts) {
            Continue(target) => target,
            Break(verdict) => return self.without_limit(verdict, parts),
        };
        match target {
            Target::Fixed(at) => self.check_limit(LimitRef::Fixed(at), parts),
            Target::Lookup(at) => self.look_up(at, parts),
            Target::Decider(at) => self.decide(at, parts),
            Target::Exempt => self.without_limit(Verdict::Admit(Admission::EXEMPT), parts),
        }
    }

    /// Completes the verdict on a request that no limiter decides. If it passes, its handler finds what it finds in other
    /// requests: a limiter that admits everything, and a meter that counts nothing. Those of an outer layer stay.
    // Not inlined: a request with a limiter would pay for the larger stack frame.
    #[inline(never)]
    fn without_limit<B>(&self, verdict: Verdict<B>, parts: &mut Parts) -> Verdict<B> {
        let extensions = &mut parts.extensions;
        if let Verdict::Admit(_) = verdict {
            if self.options.request_limiter.is_some() && extensions.get::<RequestLimiter>().is_none() {
                extensions.insert(RequestLimiter::WITHOUT_LIMIT);
            }
            if matches!(self.options.cost, Some(CostOf::Estimate(..))) && extensions.get::<Meter>().is_none() {
                extensions.insert(Meter::UNREAD);
            }
        }
        verdict
    }

    /// Selects the limiter that applies to a request, or returns the verdict on a request that none decides.
    // Inlined by force, as `check_request` is.
    #[inline(always)]
    fn target<B>(&self, parts: &Parts) -> ControlFlow<Verdict<B>, Target>
    where
        R: Respond<B>,
    {
        if self.gate.is_exempt(parts) {
            return Break(Verdict::Admit(Admission::EXEMPT));
        }
        if let Some(networks) = &self.options.networks
            && let Some(verdict) = self.check_network(networks, parts)
        {
            return Break(verdict);
        }
        match &self.selector {
            Selector::Always(target) => Continue(*target),
            Selector::By(select) => match select(parts) {
                Ok(target) => Continue(target),
                Err(error) => Break(self.judge_without_key(&error, parts)),
            },
        }
    }

    /// Exempts or rejects the request of a network that is listed. Returns `None` for any other.
    // Not inlined: a request without lists would pay for the larger stack frame.
    #[inline(never)]
    fn check_network<B>(&self, networks: &NetworkOptions, parts: &Parts) -> Option<Verdict<B>>
    where
        R: Respond<B>,
    {
        let address = match (networks.address)(parts) {
            Ok(address) => address,
            Err(error) => return Some(self.judge_without_key(&error, parts)),
        };
        match networks.networks.verdict(address) {
            NetworkVerdict::Allowed => Some(Verdict::Admit(Admission::EXEMPT)),
            // The key that an address has by default.
            NetworkVerdict::Denied if self.is_shadow(&Key::network(address, 64)) => {
                tracing::debug!("the network of the client is denied, the request passes in shadow mode");
                None
            }
            NetworkVerdict::Denied => Some(self.reject_unchecked(Reason::Forbidden, parts)),
            _ => None,
        }
    }

    /// Looks up the limiter of a request, and checks it.
    // Not inlined: a request with a fixed limiter would pay for the larger stack frame.
    #[inline(never)]
    fn look_up<B>(self: &Arc<Self>, at: usize, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        match self.lookups[at].limiter_for(parts).map(LimiterFuture::into_ready) {
            Ok(Ok(limiter)) => self.check_looked_up(limiter, parts),
            Ok(Err(pending)) => Verdict::Wait(Step::LookUp(pending)),
            Err(error) => self.without_limit(self.judge_without_key(&error, parts), parts),
        }
    }

    /// Checks a limiter that was looked up.
    #[inline(never)]
    pub(crate) fn check_looked_up<B>(self: &Arc<Self>, limiter: Result<Limited, Error>, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        match limiter {
            Ok(Limited::By(limiter)) => {
                let profile = self.profiles.of(limiter.policies(), &self.options.headers, &self.gate.labels);
                self.check_limit(LimitRef::LookedUp(limiter, profile), parts)
            }
            Ok(Limited::Exempt) => self.without_limit(Verdict::Admit(Admission::EXEMPT), parts),
            Err(error) if self.is_shadow_without_key() => {
                tracing::debug!(%error, "no limits, the request passes in shadow mode");
                self.without_limit(Verdict::Admit(Admission::EXEMPT), parts)
            }
            Err(error) => self.reject_unchecked(Reason::Unavailable(&error), parts),
        }
    }

    /// Checks the limiter of a request.
    // Inlined by force, as `check_request` is.
    #[inline(always)]
    fn check_limit<B>(self: &Arc<Self>, limit: LimitRef, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let options = &self.options;
        // Key and result are borrowed, not moved: they are larger than what is done with them.
        let extraction = self.key.extract(parts);
        let key = match &extraction {
            Ok(Some(key)) => key,
            Ok(None) => return self.without_limit(Verdict::Admit(Admission::EXEMPT), parts),
            Err(error) => return self.without_limit(self.judge_without_key(error, parts), parts),
        };
        if self.double_count.inspect(parts, key, limit.get(&self.fixed).limiter.policies()) {
            self.warn_of_unknown_units();
        }
        let cost = match &options.cost {
            None => Cost::ONE,
            Some(CostOf::One(cost)) => cost(parts),
            Some(CostOf::Each(costs)) => return self.check_costs(costs(parts), limit, key, parts),
            Some(CostOf::Estimate(estimate, options)) => {
                return self.reserve(estimate(parts), *options, limit, key, parts);
            }
        };
        let keeps_key =
            options.final_cost.is_some() || options.request_limiter.is_some() || options.partition_secret.is_some();
        let mut context = RequestContext {
            limit,
            key: keeps_key.then(|| Box::new(key.clone())),
            cost,
            costs: None,
            asked: Asked::One,
            is_shadow: self.is_shadow(key),
            labels: LabelIndex::of(parts, &self.gate.labels),
        };
        let limit = context.limit.get(&self.fixed);
        let check = if options.charges_after {
            limit.look_or_check(key, cost.into(), options.wait, context.is_shadow)
        } else {
            limit.check(key, cost, options.wait, context.is_shadow)
        };
        match check.as_ready() {
            None => Verdict::Wait(Step::Check(check, context)),
            Some(result) => self.judge(result, &mut context, parts),
        }
    }

    /// Checks the limiter of a request with a cost for each policy.
    // Not inlined: a request with one cost would pay for the larger stack frame.
    #[inline(never)]
    fn check_costs<B>(self: &Arc<Self>, costs: Costs, limit: LimitRef, key: &Key, parts: &mut Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let options = &self.options;
        let due = options.charges_after.then(|| Box::new(costs.clone()));
        let (checked, is_shadow) = (limit.get(&self.fixed), self.is_shadow(key));
        let check = if options.charges_after {
            checked.look_or_check(key, costs, options.wait, is_shadow)
        } else {
            checked.check_costs(key, costs, options.wait, is_shadow)
        };
        let labels = LabelIndex::of(parts, &self.gate.labels);
        let mut context = RequestContext {
            limit,
            key: Some(Box::new(key.clone())),
            cost: Cost::ONE,
            costs: due,
            asked: Asked::Each,
            is_shadow,
            labels,
        };
        match check.as_ready() {
            None => Verdict::Wait(Step::Check(check, context)),
            Some(result) => self.judge(result, &mut context, parts),
        }
    }

    /// Waits for the next step of a request.
    pub(crate) fn poll_step<B>(
        self: &Arc<Self>,
        step: &mut Step,
        parts: &mut Parts,
        cx: &mut Context<'_>,
    ) -> Poll<Verdict<B>>
    where
        R: Respond<B>,
    {
        Poll::Ready(match step {
            Step::Check(check, context) => {
                let result = ready!(Pin::new(check).poll(cx));
                self.judge(result.as_ref(), context, parts)
            }
            Step::Reserve(reserving) => {
                let (reservation, context) = &mut **reserving;
                let result = ready!(Pin::new(reservation).poll(cx));
                self.judge_reservation(result, context, parts)
            }
            Step::Decide(decision) => {
                let decision = ready!(Pin::new(decision).poll(cx));
                self.judge_joint(decision, parts)
            }
            Step::LookUp(limiter) => {
                let limiter = ready!(Pin::new(limiter).poll(cx));
                self.check_looked_up(limiter, parts)
            }
        })
    }

    /// Turns the result of a check into a verdict.
    // Inlined by force, as `check_request` is.
    #[inline(always)]
    pub(crate) fn judge<B>(
        self: &Arc<Self>,
        result: Result<&Decision, &Error>,
        context: &mut RequestContext,
        parts: &mut Parts,
    ) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let &mut RequestContext { limit: ref limit_ref, ref mut key, cost, ref mut costs, asked, is_shadow, labels } =
            context;
        let (limit, options) = (limit_ref.get(&self.fixed), &self.options);
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => {
                let is_misconfigured = match error.kind() {
                    ErrorKind::KeyLevels | ErrorKind::CrossSlot => true,
                    ErrorKind::Config => asked != Asked::One,
                    ErrorKind::Unsupported => asked == Asked::Estimate,
                    _ => false,
                };
                if is_shadow {
                    self.expose_limiter(limit_ref, key.as_deref(), parts, labels);
                }
                if is_misconfigured {
                    return self.judge_misconfigured(&KeyError::misconfigured(error.to_string()), is_shadow, parts);
                }
                if is_shadow {
                    tracing::debug!(%error, "no decision, the request passes in shadow mode");
                    return Verdict::Admit(Admission::EXEMPT);
                }
                let details = ResponseDetails::default();
                return Verdict::Reject(self.reject(reason_of(error), Some(limit.profile), &details, parts, labels));
            }
        };
        let details = self.details(key.as_deref());
        let decisions = options.exposes_decisions.then(|| Decisions::append(decision, &mut parts.extensions));
        self.record_decision(limit.profile, decision, labels, &self.rpc_name(parts), is_shadow);
        if decision.is_denied() && !is_shadow {
            let reason = Reason::of_denial(decision);
            return Verdict::Reject(self.reject(reason, Some(limit.profile), &details, parts, labels));
        }
        self.expose_limiter(limit_ref, key.as_deref(), parts, labels);
        let is_charged = options.final_cost.is_some() && asked != Asked::Estimate && decision.is_allowed();
        let extras = (is_charged || decisions.is_some()).then(|| {
            let key = key.take().filter(|_| is_charged);
            self.extras(limit.limiter, decision, costs.take().map_or(Due::One(cost), Due::Each), key, decisions)
        });
        let headers = if is_shadow {
            HeaderUpdate::EMPTY
        } else {
            limit.profile.headers.update(decision, decision.states(), &details)
        };
        // A layer that may give the units back raises the wait in the response, once it knows.
        if headers.is_spent() && options.final_cost.is_none() {
            OuterWait::store(decision, details.jitter, &mut parts.extensions);
        }
        Verdict::Admit(Admission::new(headers, extras))
    }

    /// Returns what is left to do besides the headers when the service has answered.
    // Not inlined: a charge is large, and the many layers without one would move it.
    #[inline(never)]
    fn extras(
        &self,
        limiter: &Limiter,
        decision: &Decision,
        due: Due,
        key: Option<Box<Key>>,
        decisions: Option<Decisions>,
    ) -> Box<Extras> {
        let charge = match (&self.options.final_cost, key) {
            (Some(final_cost), Some(key)) if decision.is_allowed() => {
                // A look that admits a request has charged nothing.
                let due = (self.options.charges_after && decision.cost() == Cost::ZERO).then_some(due);
                let charged = Charged { limiter: limiter.clone(), key: *key, decision: decision.clone() };
                Some(Charge::new([charged].into_iter().collect(), due, final_cost.clone()))
            }
            _ => None,
        };
        Box::new(Extras { charge, decisions, ..Extras::default() })
    }

    /// Gives a request the limiter that its service charges further units with, where the layer does so.
    #[inline]
    fn expose_limiter(self: &Arc<Self>, limit: &LimitRef, key: Option<&Key>, parts: &mut Parts, labels: LabelIndex)
    where
        R: Send + Sync + 'static,
    {
        if let (Some(source), Some(key)) = (self.options.request_limiter, key) {
            let limiter = self.request_limiter(source, limit, key, parts, labels);
            parts.extensions.insert(limiter);
        }
    }

    fn request_limiter(
        self: &Arc<Self>,
        source: RequestLimiterSource,
        limit: &LimitRef,
        key: &Key,
        parts: &Parts,
        labels: LabelIndex,
    ) -> RequestLimiter
    where
        R: Send + Sync + 'static,
    {
        let limit = match source {
            RequestLimiterSource::Same => limit.clone(),
            RequestLimiterSource::At(own) => LimitRef::Fixed(own),
        };
        // The names appear in debug logs alone, so they are copied only for those.
        let is_logged = tracing::enabled!(tracing::Level::DEBUG);
        let rpc = if is_logged { self.rpc_name(parts).into_owned() } else { RpcName::NONE };
        let priority = self.options.priority.as_ref().map_or(Priority::CRITICAL, |priority| priority(parts));
        let charger = Arc::clone(self) as Arc<dyn Charger>;
        RequestLimiter::of_layer(LimitedRequest { charger, limit, key: key.clone(), priority, labels, rpc })
    }
}

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
    /// Returns how a check waits where the layer waits for up to `max_wait`. A limit that is tried out delays nobody.
    #[inline(always)]
    fn waits(self, max_wait: Option<Duration>, is_shadow: bool) -> Waits {
        match max_wait {
            _ if is_shadow => Waits::Never,
            Some(max_wait) => Waits::UpTo(max_wait),
            None if self.profile.has_queue => Waits::InQueue,
            None => Waits::Never,
        }
    }

    /// Checks the limiter. Waits for up to `max_wait` where the layer waits instead of denying.
    // Inlined by force: the decision is built where the caller reads it, instead of being copied there.
    #[inline(always)]
    pub(crate) fn check(self, key: &Key, cost: Cost, max_wait: Option<Duration>, is_shadow: bool) -> CheckFuture {
        match self.waits(max_wait, is_shadow) {
            Waits::Never => self.limiter.check_key(key).cost(cost).into_future(),
            waits => check_costs(self.limiter, waits, key, cost.into()),
        }
    }

    /// Checks the limiter with a cost for each policy, as [`check`](Self::check) does.
    pub(crate) fn check_costs(
        self,
        key: &Key,
        costs: Costs,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> CheckFuture {
        check_costs(self.limiter, self.waits(max_wait, is_shadow), key, costs)
    }

    /// Reserves an estimate, and waits in the queue of a limiter that has one, for up to `max_wait` if that is set.
    pub(crate) fn reserve(
        self,
        key: &Key,
        estimate: Costs,
        options: ReserveOptions,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> StoreFuture<Reservation> {
        let reservation = options.reserve(self.limiter, key, estimate, max_wait);
        if !self.profile.has_queue || is_shadow {
            return reservation;
        }
        let is_in_process = self.limiter.is_in_process();
        StoreFuture::pending(async move { wait::leave_queue_reserved(reservation.await?, is_in_process).await })
    }

    /// Looks whether the costs fit, and charges nothing then. Costs that do not fit are checked, which denies them
    /// with the exact time to retry. Those that never fit are refused before the store is asked, as in other checks.
    pub(crate) fn look_or_check(
        self,
        key: &Key,
        costs: Costs,
        max_wait: Option<Duration>,
        is_shadow: bool,
    ) -> CheckFuture {
        let waits = self.waits(max_wait, is_shadow);
        let may_fit = |policy: &Policy| {
            let most = costs.priority().units_of_policy(policy);
            costs.cost_of(policy.name()).is_some_and(|cost| cost.units() <= most)
        };
        if !self.limiter.policies().iter().all(may_fit) {
            return check_costs(self.limiter, waits, key, costs);
        }
        let nothing = Costs::new(Cost::ZERO).with_priority(costs.priority());
        let look = match self.limiter.check_key(key).cost(nothing).into_future().into_ready() {
            Ok(Ok(look)) if !has_room(&look, &costs) => return check_costs(self.limiter, waits, key, costs),
            Ok(result) => return StoreFuture::ready(result),
            Err(look) => look,
        };
        let (limiter, key) = (self.limiter.clone(), key.clone());
        StoreFuture::pending(async move {
            let look = look.await?;
            if has_room(&look, &costs) {
                return Ok(look);
            }
            check_costs(&limiter, waits, &key, costs).await
        })
    }
}

/// Says how a check waits.
#[derive(Clone, Copy)]
enum Waits {
    Never,
    /// For quota, instead of being denied.
    UpTo(Duration),
    /// In the queue of a leaky bucket.
    InQueue,
}

fn check_costs(limiter: &Limiter, waits: Waits, key: &Key, costs: Costs) -> CheckFuture {
    match waits {
        Waits::Never => limiter.check_key(key).cost(costs).into_future(),
        Waits::UpTo(max_wait) => wait::check_or_wait(limiter, key.clone(), costs, max_wait),
        Waits::InQueue => wait::check_and_queue(limiter, key.clone(), costs),
    }
}

/// Returns whether every policy has the units left, for the priority of the look. A cost above the share of a replica spends
/// the share.
fn has_room(look: &Decision, costs: &Costs) -> bool {
    look.states().all(|state| {
        let most = costs.priority().units_of_policy(state.policy());
        costs.cost_of(state.policy().name()).is_some_and(|cost| state.remaining() >= cost.units().min(most))
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

    /// Returns whether a set with a policy of this name is kept.
    fn have(&self, policy: &str) -> bool {
        self.cache.iter().any(|(policies, _)| policies.iter().any(|held| held.name() == policy))
    }
}
