//! The service for Envoy: one request from its message to its answer, with its counts and its log
//! line.
//! The steps are in the files beside, and the decision is that of tollgate-rules. Calls that reserve
//! and settle are in `kuadrant.rs`.

use std::{sync::Arc, time::Instant};

use tollgate_rules::{Descriptor, Plan, RuleDecision, RuleLimiter, RuleSet};
use tonic::{Request, Response, Status};

use super::{
    answer,
    descriptors::descriptors,
    failure::{self, CallFailure},
    headers::Headers,
    near_limit::NearLimit,
    structs,
};
use crate::{
    Metrics,
    metrics::Counted,
    proto::ratelimit::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_service_server::{RateLimitService as Service, RateLimitServiceServer},
    },
};

/// Answers the requests of Envoy's rate limit protocol, version 3.
///
/// The type implements the gRPC service `envoy.service.ratelimit.v3.RateLimitService`. Mount it in
/// a server of your own, or use the program `tollgate-envoy`, which adds health, metrics, TLS and
/// rules from a control plane. A [`RuleLimiter`] provides the rules and the store.
///
/// ```
/// use tollgate::MemoryStore;
/// use tollgate_envoy::{
///     RateLimitService,
///     proto::ratelimit::{RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry},
/// };
/// use tollgate_rules::{Format, RuleLimiter, RuleSet, Rules};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = RuleSet::parse(
///     "{domain: shop, descriptors: [{key: tenant, rate_limit: {unit: hour, requests_per_unit: 1}}]}",
///     Format::Yaml,
/// )?;
/// let service = RateLimitService::new(RuleLimiter::new(Rules::new(rules), MemoryStore::new()));
///
/// let tenant = Entry { key: "tenant".to_owned(), value: "acme".to_owned() };
/// let request = RateLimitRequest {
///     domain: "shop".to_owned(),
///     descriptors: vec![RateLimitDescriptor { entries: vec![tenant], ..Default::default() }],
///     hits_addend: 0,
/// };
/// assert_eq!(service.decide(&request).await?.overall_code().as_str_name(), "OK");
/// assert_eq!(service.decide(&request).await?.overall_code().as_str_name(), "OVER_LIMIT");
///
/// let server = tonic::service::Routes::new(service.into_server());
/// # drop(server);
/// # Ok(()) }
/// ```
///
/// A clone is cheap, and shares everything.
#[derive(Clone)]
pub struct RateLimitService(pub(super) Arc<ServiceInner>);

#[derive(Debug)]
pub(super) struct ServiceInner {
    pub(super) limiter: RuleLimiter,
    pub(super) metrics: Metrics,
    pub(super) headers: Headers,
    pub(super) near_limit: Option<NearLimit>,
    pub(super) has_dynamic_metadata: bool,
    pub(super) max_descriptors: usize,
    pub(super) max_message_bytes: usize,
}

impl RateLimitService {
    /// Returns the limiter.
    #[must_use]
    pub fn limiter(&self) -> &RuleLimiter {
        &self.0.limiter
    }

    /// Returns the metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Returns the gRPC service, for the router of a tonic server.
    ///
    /// The service of Kuadrant's protocol is
    /// [`into_kuadrant_server`](Self::into_kuadrant_server).
    #[must_use]
    pub fn into_server(self) -> RateLimitServiceServer<Self> {
        let max = self.0.max_message_bytes;
        RateLimitServiceServer::new(self).max_decoding_message_size(max)
    }

    /// Spends units of all descriptors of a request, and decides it. A descriptor with
    /// `is_negative_hits` [gives units back](RuleLimiter#units-that-are-given-back).
    ///
    /// # Errors
    ///
    /// - `INVALID_ARGUMENT`: the domain is empty, there are no descriptors or too many, or the
    ///   `limit` of a descriptor has no unit.
    /// - `UNAVAILABLE`: no rules are loaded, or the store failed and a rule denies in an outage.
    /// - `INTERNAL`: the store is configured wrongly.
    ///
    /// # Cancellation
    ///
    /// A dropped future may have spent units of some or all descriptors.
    pub async fn decide(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.counted(self.answer(request).await)
    }

    /// Counts a failure, and returns its status.
    pub(super) fn counted<T>(&self, answer: Result<T, CallFailure>) -> Result<T, Status> {
        answer.map_err(|failure| {
            let counted = match &failure {
                CallFailure::Request(_) => Counted::ServiceErrors,
                CallFailure::Store(_) => Counted::StoreErrors,
            };
            self.0.metrics.count(counted, 1);
            failure::status(&failure)
        })
    }

    async fn answer(&self, request: &RateLimitRequest) -> Result<RateLimitResponse, CallFailure> {
        let set = self.rules()?;
        let descriptors = descriptors(&request.descriptors, self.0.max_descriptors)?;
        let plan = self.plan(&set, &request.domain, &descriptors, request.hits_addend)?;
        let decision = self.0.limiter.check_plan(&plan).await?;
        Ok(self.response(&plan, &decision))
    }

    /// Returns the rules in force.
    pub(super) fn rules(&self) -> Result<Arc<RuleSet>, CallFailure> {
        let rules = self.0.limiter.rules();
        if rules.loads().succeeded == 0 {
            return Err(CallFailure::Request(Status::unavailable(
                "no rate limit configuration loaded",
            )));
        }
        Ok(rules.current())
    }

    /// Returns the limits of a request.
    pub(super) fn plan<'a>(
        &self,
        set: &'a RuleSet,
        domain: &'a str,
        descriptors: &'a [Descriptor<'a>],
        hits: u32,
    ) -> Result<Plan<'a>, CallFailure> {
        let plan = set.plan(domain, descriptors, hits)?;
        // What is found belongs to a domain, so that it is not looked up again.
        if plan.iter().all(|planned| planned.found().is_none()) && !set.has_domain(domain) {
            self.0
                .metrics
                .count(Counted::UnknownDomains, descriptors.len() as u64);
        }
        Ok(plan)
    }

    /// Counts a decision, and returns the whole response to it.
    pub(super) fn response(&self, plan: &Plan<'_>, decision: &RuleDecision) -> RateLimitResponse {
        let shared = &*self.0;
        self.record(plan, decision);
        let mut response = answer::response(plan, decision);
        shared
            .headers
            .add(&mut response.response_headers_to_add, plan, decision);
        if let Some(near_limit) = &shared.near_limit {
            near_limit.add(&mut response.request_headers_to_add, plan, decision);
        }
        if shared.has_dynamic_metadata {
            response.dynamic_metadata =
                Some(structs::message(&plan.dynamic_metadata(decision.verdict())));
        }
        response
    }

    /// Counts the units of each rule.
    pub(super) fn record(&self, plan: &Plan<'_>, decision: &RuleDecision) {
        let metrics = &self.0.metrics;
        for (planned, status) in plan.iter().zip(decision.verdict().statuses()) {
            if let Some(found) = planned.charged() {
                metrics.count_usage(&found.metric_name(), status.usage());
            }
        }
        if decision.verdict().is_shadowed() {
            metrics.count(Counted::Shadowed, 1);
        }
        // The answer of an outage is no answer of the store: alerts on failures of the store must
        // see it.
        if decision
            .decisions()
            .iter()
            .flatten()
            .any(tollgate::Decision::is_degraded)
        {
            metrics.count(Counted::StoreErrors, 1);
        }
    }
}

#[tonic::async_trait]
impl Service for RateLimitService {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let started = Instant::now();
        let result = self.decide(request.get_ref()).await;
        self.0.metrics.count_call(started.elapsed());
        result.map(Response::new)
    }
}

tollgate::debug_fields! { RateLimitService: limiter = .0.limiter, headers = .0.headers, .. }
