//! The state that all clones of a layer share.

mod check;
mod handler;
mod joint;
mod reserve;

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use http::{Response, request::Parts};
use smallvec::SmallVec;
use tollgate::{CheckFuture, Cost, Decision, Error, ErrorKind, Key, Limiter};

use crate::{
    decisions::Decisions,
    double_count::DoubleCountDetector,
    headers::{ResponseDetails, partition_key},
    key::{KeyError, KeyErrorKind},
    labels::MetricLabels,
    metrics::{self, LabelIndex, LimitMetrics},
    rate_limit::{
        answer::{Admission, Verdict},
        joint::RequestDecider,
        limit::{FixedLimit, LimitRef},
        limiters::{LimiterSource, LimiterTable, Lookup, Selector},
        options::Options,
        profile::{Profile, Profiles},
        request_limiter::Charger,
    },
    rejection::{self, Reason, Rejection, Respond, add_headers},
    rpc::RpcName,
};

/// Stores what all clones of a layer and all of its services share.
pub(crate) struct Shared<K, R> {
    fixed: Vec<FixedLimit>,
    lookups: Vec<Box<dyn Lookup>>,
    deciders: Vec<Box<dyn RequestDecider>>,
    profiles: Profiles,
    options: Options,
    labels: MetricLabels,
    key: K,
    responder: R,
    selector: Selector,
    double_count: DoubleCountDetector,
    has_logged_misconfiguration: AtomicBool,
}

impl<K, R> Shared<K, R> {
    pub(crate) fn new(limiters: LimiterSource, options: Options, key: K, responder: R) -> Self {
        let labels = options.labels.clone().or(limiters.labels).unwrap_or_default();
        let LimiterTable { fixed, lookups, deciders } = limiters.limiters;
        if !deciders.is_empty() {
            options.warn_without_key();
        }
        let fixed = fixed.into_iter().map(|limiter| {
            let profile = Profile::new(limiter.policies(), &options.headers, LimitMetrics::new(&labels));
            FixedLimit { limiter, profile }
        });
        Self {
            fixed: fixed.collect(),
            lookups,
            deciders,
            profiles: Profiles::new(),
            options,
            labels,
            key,
            responder,
            selector: limiters.selector,
            double_count: DoubleCountDetector::default(),
            has_logged_misconfiguration: AtomicBool::new(false),
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

    /// Counts and logs a decision.
    fn record_decision(&self, profile: &Profile, decision: &Decision, labels: LabelIndex, rpc: &RpcName<&str>) {
        self.record_decision_as(profile, decision, labels, rpc, self.options.is_shadow);
    }

    /// Counts and logs a decision, which denies nothing in shadow mode.
    #[inline]
    fn record_decision_as(
        &self,
        profile: &Profile,
        decision: &Decision,
        labels: LabelIndex,
        rpc: &RpcName<&str>,
        is_shadow: bool,
    ) {
        profile.metrics.record_decision(decision, &self.labels, labels, is_shadow);
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
        let secret = &self.options.partition_secret;
        ResponseDetails {
            jitter: rejection::jitter(self.options.retry_jitter),
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
        let mut response = self.responder.respond(&rejection);
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
        let adds_retry_after = self.responder.adds_retry_after(rejection);
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
        // The mistake is the same for every request, so it is logged once.
        let is_misconfigured = error.kind() == KeyErrorKind::Misconfigured;
        if is_misconfigured && !self.has_logged_misconfiguration.swap(true, Ordering::Relaxed) {
            tracing::error!(hint = %error, "requests cannot be rate limited");
        }
        if self.options.is_shadow {
            return Verdict::Admit(Admission::EXEMPT);
        }
        self.reject_unchecked(Reason::MissingKey(error), parts)
    }

    /// Rejects a request without a check.
    fn reject_unchecked<B>(&self, reason: Reason<'_>, parts: &Parts) -> Verdict<B>
    where
        R: Respond<B>,
    {
        let labels = LabelIndex::of(parts, &self.labels);
        Verdict::Reject(self.reject(reason, None, &ResponseDetails::default(), parts, labels))
    }
}

impl<K: Send + Sync, R: Send + Sync> Charger for Shared<K, R> {
    fn limiter<'a>(&'a self, limit: &'a LimitRef) -> &'a Limiter {
        limit.get(&self.fixed).limiter
    }

    fn check(&self, limit: &LimitRef, key: &Key, cost: Cost) -> CheckFuture {
        limit.get(&self.fixed).check(key, cost, self.options.wait)
    }

    fn record(
        &self,
        limit: &LimitRef,
        result: &Result<Decision, Error>,
        labels: LabelIndex,
        rpc: &RpcName<&str>,
    ) -> bool {
        let reason = match result {
            Ok(decision) => {
                self.record_decision(limit.get(&self.fixed).profile, decision, labels, rpc);
                if decision.is_allowed() {
                    return true;
                }
                reason_of_denial(decision)
            }
            Err(error) => reason_of(error),
        };
        if !self.options.is_shadow {
            self.record_rejection(reason, labels, rpc);
        }
        self.options.is_shadow
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
