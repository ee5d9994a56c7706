//! The state that all clones of a layer share.

mod handler;
mod joint;
mod reserve;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Response, request::Parts};
use smallvec::SmallVec;
use tollgate::{
    Cost, Costs, Decision, Error, ErrorKind, Key, Limiter,
    limiter::{Limited, LimiterFuture},
};

use crate::{
    charge::{Charge, Charged, Due},
    decisions::Decisions,
    double_count::DoubleCountDetector,
    gate::GateOptions,
    headers::{HeaderUpdate, ResponseDetails, partition_key},
    key::{KeyError, KeyExtractor, NetworkVerdict},
    metrics::{self, LabelIndex, LimitMetrics},
    outer_wait::OuterWait,
    rate_limit::{
        admission::{Admission, Asked, Extras, RequestContext, Step, Verdict},
        handler::{Charger, RequestLimiter},
        joint::RequestDecider,
        limit::{CostOf, FixedLimit, LimitRef, NetworkOptions, Options, Profile, Profiles, RequestLimiterSource},
        limiters::{LimiterSource, LimiterTable, Lookup, Selector, Target},
    },
    rejection::{Reason, Rejection, Respond, add_headers},
    rpc::RpcName,
};

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
        if !deciders.is_empty() {
            options.warn_without_key();
        }
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

    /// Returns the names of a call, as the log shows them.
    fn rpc_name<'a>(&self, parts: &'a Parts) -> RpcName<&'a str> {
        self.options.rpc_name.as_ref().and_then(|name| name(parts)).map_or(RpcName::NONE, RpcName::new)
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

    fn reject<B>(
        &self,
        reason: Reason<'_>,
        profile: Option<&Profile>,
        details: &ResponseDetails,
        parts: &Parts,
        labels: LabelIndex,
    ) -> Response<B>
    where
        R: Respond<B>,
    {
        self.record_rejection(reason, labels, &self.rpc_name(parts));
        let mut states = SmallVec::<[_; 4]>::new();
        if let Reason::Denied(decision) = reason {
            decision.states().for_each(|state| states.push(state));
        }
        let rejection = Rejection::new(reason, &states, details.jitter, parts);
        let mut response = self.gate.responder.respond(&rejection);
        self.add_to_rejection(&rejection, profile, details, &mut response);
        response
    }

    /// Adds to the response of the responder what it has not set.
    #[inline]
    fn add_to_rejection<B>(
        &self,
        rejection: &Rejection<'_>,
        profile: Option<&Profile>,
        details: &ResponseDetails,
        response: &mut Response<B>,
    ) where
        R: Respond<B>,
    {
        let adds_retry_after = self.gate.responder.adds_retry_after(rejection);
        let writer = profile.map(|profile| &profile.headers);
        add_headers(rejection, writer, details, adds_retry_after, response.headers_mut());
        if self.options.exposes_decisions
            && let Some(decisions) = rejection.request().extensions.get::<Decisions>()
        {
            response.extensions_mut().insert(decisions.clone());
        }
    }

    #[cold]
    fn judge_without_key<B>(&self, error: &KeyError, parts: &Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        self.judge_misconfigured(error, self.options.is_shadow_without_key(), parts)
    }

    #[cold]
    fn judge_misconfigured<B>(&self, error: &KeyError, is_shadow: bool, parts: &Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        self.gate.log_misconfiguration(error, "requests cannot be rate limited");
        if is_shadow {
            return Verdict::Admit(Admission::EXEMPT);
        }
        self.reject_unchecked(Reason::MissingKey(error), parts)
    }

    /// Rejects a request without a check.
    fn reject_unchecked<B>(&self, reason: Reason<'_>, parts: &Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let labels = LabelIndex::of(parts, &self.gate.labels);
        Verdict::Reject(self.reject(reason, None, &ResponseDetails::default(), parts, labels))
    }
}

/// Returns why a denial rejects the request.
#[inline]
fn reason_of_denial(decision: &Decision) -> Reason<'_> {
    if decision.is_blocked() { Reason::Blocked } else { Reason::Denied(decision) }
}

/// Returns why a check without a decision rejects the request.
fn reason_of(error: &Error) -> Reason<'_> {
    match error.kind() {
        ErrorKind::CostExceedsBurst => Reason::CostNeverFits(error),
        _ => Reason::Unavailable(error),
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
        if self.gate.is_exempt(parts) {
            return Verdict::Admit(Admission::EXEMPT);
        }
        if let Some(networks) = &self.options.networks
            && let Some(verdict) = self.check_network(networks, parts)
        {
            return verdict;
        }
        let target = match &self.selector {
            Selector::Always(target) => *target,
            Selector::By(select) => match select(parts) {
                Ok(target) => target,
                Err(error) => return self.judge_without_key(&error, parts),
            },
        };
        match target {
            Target::Fixed(at) => self.check_limit(LimitRef::Fixed(at), parts),
            Target::Lookup(at) => self.look_up(at, parts),
            Target::Decider(at) => self.decide(at, parts),
            Target::Exempt => Verdict::Admit(Admission::EXEMPT),
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
            NetworkVerdict::Denied if self.options.is_shadow(&Key::network(address, 64)) => {
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
            Err(error) => self.judge_without_key(&error, parts),
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
            Ok(Limited::Exempt) => Verdict::Admit(Admission::EXEMPT),
            Err(error) if self.options.is_shadow_without_key() => {
                tracing::debug!(%error, "no limits, the request passes in shadow mode");
                Verdict::Admit(Admission::EXEMPT)
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
            Ok(None) => return Verdict::Admit(Admission::EXEMPT),
            Err(error) => return self.judge_without_key(error, parts),
        };
        self.double_count.inspect(parts, key, limit.get(&self.fixed).limiter.policies());
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
            is_shadow: options.is_shadow(key),
            labels: LabelIndex::of(parts, &self.gate.labels),
        };
        let limit = context.limit.get(&self.fixed);
        let check = if options.charges_after {
            limit.look_or_check(key, cost.into(), options.wait)
        } else {
            limit.check(key, cost, options.wait)
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
        let checked = limit.get(&self.fixed);
        let check = if options.charges_after {
            checked.look_or_check(key, costs, options.wait)
        } else {
            checked.check_costs(key, costs, options.wait)
        };
        let labels = LabelIndex::of(parts, &self.gate.labels);
        let mut context = RequestContext {
            limit,
            key: Some(Box::new(key.clone())),
            cost: Cost::ONE,
            costs: due,
            asked: Asked::Each,
            is_shadow: options.is_shadow(key),
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
            let reason = reason_of_denial(decision);
            return Verdict::Reject(self.reject(reason, Some(limit.profile), &details, parts, labels));
        }
        if let (Some(source), Some(key)) = (options.request_limiter, &*key) {
            let limiter = self.request_limiter(source, limit_ref, key, parts, labels);
            parts.extensions.insert(limiter);
        }
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
        if headers.is_spent() {
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
        RequestLimiter::new(Arc::clone(self) as Arc<dyn Charger>, limit, key.clone(), labels, rpc)
    }
}
