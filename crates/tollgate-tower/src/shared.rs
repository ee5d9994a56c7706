//! Judges requests: from the head of a request to a verdict.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Response, request::Parts};
use smallvec::SmallVec;
use tollgate::{CheckFuture, Cost, Decision, Error, ErrorKind, Key, Limiter};

use crate::{
    answer::{Admission, Extras, RequestContext, Verdict},
    charge::Charge,
    decisions::Decisions,
    double_count::DoubleCountDetector,
    headers::{HeaderUpdate, ResponseDetails, partition_key},
    key::{KeyError, KeyErrorKind, KeyExtractor},
    labels::MetricLabels,
    limit::Limit,
    limiters::{LimiterSource, Selection, Selector},
    metrics::{self, LabelIndex},
    options::{Options, RequestLimiterSource},
    outer_wait::OuterWait,
    rejection::{Reason, Rejection, Respond, add_headers},
    request_limiter::{Charger, RequestLimiter},
    rpc::RpcName,
};

/// Stores what all clones of a layer and all of its services share.
pub(crate) struct Shared<K, R> {
    pub(crate) limits: Vec<Limit>,
    options: Options,
    labels: MetricLabels,
    key: K,
    responder: R,
    selector: Option<Selector>,
    double_count: DoubleCountDetector,
    has_logged_misconfiguration: AtomicBool,
}

impl<K, R> Shared<K, R> {
    pub(crate) fn new(limiters: LimiterSource, options: Options, key: K, responder: R) -> Self {
        let labels = options.labels.clone().or(limiters.labels).unwrap_or_default();
        Self {
            limits: limiters.limiters.into_iter().map(|limiter| Limit::new(limiter, &options, &labels)).collect(),
            options,
            labels,
            key,
            responder,
            selector: limiters.selector,
            double_count: DoubleCountDetector::default(),
            has_logged_misconfiguration: AtomicBool::new(false),
        }
    }

    /// Returns the names of a call, as the log shows them.
    fn rpc_name<'a>(&self, parts: &'a Parts) -> RpcName<&'a str> {
        self.options.rpc_name.as_ref().and_then(|name| name(parts)).map_or(RpcName::NONE, RpcName::new)
    }

    /// Counts and logs a decision.
    fn record_decision(&self, limit: usize, decision: &Decision, labels: LabelIndex, rpc: &RpcName<&str>) {
        let is_shadow = self.options.is_shadow;
        self.limits[limit].metrics.record_decision(decision, &self.labels, labels, is_shadow);
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
        metrics::count_rejection(reason.as_str(), &self.labels, labels);
        // `record_decision` logs denials, because it does so in shadow mode too.
        if !matches!(reason, Reason::Denied(_)) {
            let reason = reason.as_str();
            tracing::debug!(reason, rpc.service = rpc.service, rpc.method = rpc.method, "rejected");
        }
    }

    /// Returns the details of a response to a request with this key.
    #[inline]
    fn details(&self, key: Option<&Key>) -> ResponseDetails {
        let (jitter, secret) = (self.options.retry_jitter, &self.options.partition_secret);
        ResponseDetails {
            jitter: if jitter.is_zero() { Duration::ZERO } else { jitter.mul_f64(fastrand::f64()) },
            partition_key: secret.as_ref().zip(key).map(|(secret, key)| partition_key(key, secret)),
        }
    }

    fn reject<B>(
        &self,
        reason: Reason<'_>,
        limit: Option<&Limit>,
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
        let mut response = self.responder.respond(&rejection);
        let adds_retry_after = self.responder.adds_retry_after(&rejection);
        add_headers(&rejection, limit, details, adds_retry_after, response.headers_mut());
        if self.options.exposes_decisions
            && let Some(decisions) = parts.extensions.get::<Decisions>()
        {
            response.extensions_mut().insert(decisions.clone());
        }
        response
    }

    #[cold]
    fn judge_without_key<B>(&self, error: &KeyError, parts: &Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        // The mistake is the same for every request, so it is logged once.
        let is_misconfigured = error.kind() == KeyErrorKind::Misconfigured;
        if is_misconfigured && !self.has_logged_misconfiguration.swap(true, Ordering::Relaxed) {
            tracing::error!(hint = %error, "requests cannot be rate limited");
        }
        if self.options.is_shadow {
            return Verdict::Admit(Admission::EXEMPT);
        }
        let labels = LabelIndex::of(parts, &self.labels);
        Verdict::Reject(self.reject(Reason::MissingKey(error), None, &ResponseDetails::default(), parts, labels))
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
        let options = &self.options;
        if options.exempt.as_ref().is_some_and(|exempt| exempt(parts)) {
            return Verdict::Admit(Admission::EXEMPT);
        }
        let limit = match &self.selector {
            None => 0,
            Some(select) => match select(parts) {
                Ok(Selection::Limiter(limit)) => limit,
                Ok(Selection::Exempt) => return Verdict::Admit(Admission::EXEMPT),
                Err(error) => return self.judge_without_key(&error, parts),
            },
        };
        // Key and result are borrowed, not moved: they are larger than what is done with them.
        let extraction = self.key.extract(parts);
        let key = match &extraction {
            Ok(Some(key)) => key,
            Ok(None) => return Verdict::Admit(Admission::EXEMPT),
            Err(error) => return self.judge_without_key(error, parts),
        };
        self.double_count.inspect(parts, key, self.limits[limit].limiter.policies());
        let cost = options.cost.as_ref().map_or(Cost::ONE, |cost| cost(parts));
        let keeps_key =
            options.final_cost.is_some() || options.request_limiter.is_some() || options.partition_secret.is_some();
        let mut context = RequestContext {
            limit,
            key: keeps_key.then(|| Box::new(key.clone())),
            cost,
            labels: LabelIndex::of(parts, &self.labels),
        };
        let check = if options.charges_after {
            self.limits[limit].look_or_check(key, cost, options.wait)
        } else {
            self.limits[limit].check(key, cost, options.wait)
        };
        match check.as_ready() {
            None => Verdict::Wait(check, context),
            Some(result) => self.judge(result, &mut context, parts),
        }
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
        let &mut RequestContext { limit: index, ref mut key, cost, labels } = context;
        let (limit, options) = (&self.limits[index], &self.options);
        let decision = match result {
            Ok(decision) => decision,
            Err(error) => {
                if error.kind() == ErrorKind::KeyLevels {
                    return self.judge_without_key(&KeyError::misconfigured(error.to_string()), parts);
                }
                if options.is_shadow {
                    tracing::debug!(%error, "no decision, the request passes in shadow mode");
                    return Verdict::Admit(Admission::EXEMPT);
                }
                let details = ResponseDetails::default();
                return Verdict::Reject(self.reject(reason_of(error), Some(limit), &details, parts, labels));
            }
        };
        let details = self.details(key.as_deref());
        let decisions = options.exposes_decisions.then(|| Decisions::append(decision, &mut parts.extensions));
        self.record_decision(index, decision, labels, &self.rpc_name(parts));
        if decision.is_denied() && !options.is_shadow {
            return Verdict::Reject(self.reject(Reason::Denied(decision), Some(limit), &details, parts, labels));
        }
        if let (Some(source), Some(key)) = (options.request_limiter, &*key) {
            let limiter = self.request_limiter(source, index, key, parts, labels);
            parts.extensions.insert(limiter);
        }
        let is_charged = options.final_cost.is_some() && decision.is_allowed();
        let extras =
            (is_charged || decisions.is_some()).then(|| self.extras(limit, decision, cost, key.take(), decisions));
        let headers = if options.is_shadow {
            HeaderUpdate::EMPTY
        } else {
            limit.headers.update(decision, decision.states(), &details)
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
        limit: &Limit,
        decision: &Decision,
        cost: Cost,
        key: Option<Box<Key>>,
        decisions: Option<Decisions>,
    ) -> Box<Extras> {
        let charge = match (&self.options.final_cost, key) {
            (Some(final_cost), Some(key)) if decision.is_allowed() => {
                // A look that admits a request has charged nothing.
                let due = (self.options.charges_after && decision.cost() == Cost::ZERO).then_some(cost);
                Some(Charge::new(limit.limiter.clone(), *key, decision.clone(), due, final_cost.clone()))
            }
            _ => None,
        };
        Box::new(Extras { charge, decisions })
    }

    fn request_limiter(
        self: &Arc<Self>,
        source: RequestLimiterSource,
        limit: usize,
        key: &Key,
        parts: &Parts,
        labels: LabelIndex,
    ) -> RequestLimiter
    where
        R: Send + Sync + 'static,
    {
        let limit = match source {
            RequestLimiterSource::Same => limit,
            RequestLimiterSource::At(own) => own,
        };
        // The names appear in debug logs alone, so they are copied only for those.
        let is_logged = tracing::enabled!(tracing::Level::DEBUG);
        let rpc = if is_logged { self.rpc_name(parts).into_owned() } else { RpcName::NONE };
        RequestLimiter::new(Arc::clone(self) as Arc<dyn Charger>, limit, key.clone(), labels, rpc)
    }
}

impl<K: Send + Sync, R: Send + Sync> Charger for Shared<K, R> {
    fn limiter(&self, limit: usize) -> &Limiter {
        &self.limits[limit].limiter
    }

    fn check(&self, limit: usize, key: &Key, cost: Cost) -> CheckFuture {
        self.limits[limit].check(key, cost, self.options.wait)
    }

    fn record(&self, limit: usize, result: &Result<Decision, Error>, labels: LabelIndex, rpc: &RpcName<&str>) -> bool {
        let reason = match result {
            Ok(decision) => {
                self.record_decision(limit, decision, labels, rpc);
                if decision.is_allowed() {
                    return true;
                }
                Reason::Denied(decision)
            }
            Err(error) => reason_of(error),
        };
        if !self.options.is_shadow {
            self.record_rejection(reason, labels, rpc);
        }
        self.options.is_shadow
    }
}

/// Returns why a check without a decision rejects the request.
fn reason_of(error: &Error) -> Reason<'_> {
    match error.kind() {
        ErrorKind::CostExceedsBurst => Reason::CostNeverFits(error),
        _ => Reason::Unavailable(error),
    }
}
