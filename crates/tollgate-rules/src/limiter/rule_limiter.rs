//! The limiter of requests with several descriptors: it plans, charges, settles, refunds and
//! counts, in this order.
//! The plan is made in `verdict/`, the charges in `steps.rs`, the settlement in `settle.rs`; here
//! stands only how they follow each other.

use std::sync::Arc;

use smallvec::smallvec;
use tollgate::{Error, Limiter, Outage, limiter::DeniedKeys};

use super::{
    decision::{CheckError, RuleDecision},
    exceeded::Exceeded,
    give_back::give_back,
    settle::{blocked_outcome, settle},
    steps::{ChargedDescriptor, Pending, Steps, charge, refund},
};
use crate::{
    Code, Descriptor, DescriptorOutcome, GlobalModes, Plan, Planned, Rule, Rules, Verdict,
};

/// Checks requests of several descriptors against [`Rules`] on a store.
///
/// In native [mode](crate::Compat), every descriptor with a limit is checked, and a denied request
/// is free. Up to four descriptors with up to eight policies are decided in one atomic step: all
/// are charged, or none. These descriptors have a step of their own, which is taken at the same
/// time:
///
/// - descriptors in shadow mode, and quota descriptors, because they do not deny the request alone;
/// - descriptors with another `on_outage`, or with a policy of the same name as another one;
/// - descriptors whose units never fit;
/// - all descriptors in a Redis Cluster, where the counters lie in different slots.
///
/// When the request is denied, the steps that passed are refunded. Until then, the denied request
/// holds their units, and another request may be denied for lack of them. If a refund does not
/// reach the store, the units stay spent.
///
/// In the mode `envoy`, a denied request is charged on every descriptor, and the units above the
/// limit use up the rest of the window. As in Envoy's service, a check of 0 units is denied only
/// after the limit was exceeded.
///
/// ```
/// use tollgate::MemoryStore;
/// use tollgate_rules::{Code, Descriptor, Format, RuleLimiter, RuleSet, Rules};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = RuleSet::parse(
///     "
///     domain: shop
///     descriptors:
///       - {key: tenant, rate_limit: {quota: 10/h}}
///       - {key: route, value: /export, rate_limit: {quota: 1/h}}
///     ",
///     Format::Yaml,
/// )?;
/// let limiter = RuleLimiter::new(Rules::new(rules), MemoryStore::new());
/// let request = [Descriptor::from([("tenant", "acme")]), Descriptor::from([("route", "/export")])];
///
/// let decision = limiter.check("shop", &request, 1).await?;
/// assert_eq!(decision.verdict().code(), Code::Ok);
/// assert_eq!(decision.verdict().statuses()[0].remaining(), 9);
///
/// // The export is denied, and the tenant is not charged.
/// let decision = limiter.check("shop", &request, 1).await?;
/// assert!(decision.is_denied());
/// let decision = limiter.check("shop", &request[..1], 1).await?;
/// assert_eq!(decision.verdict().statuses()[0].remaining(), 8);
/// # Ok(()) }
/// ```
///
/// # Units that are given back
///
/// A [refunding](Descriptor::refunding) descriptor gives its units back, at most what is spent, and
/// passes. Its status shows what is left then. The units return as the
/// [algorithm](tollgate::Limiter::refund) gives back units that were spent just now, before the
/// other descriptors of the request are charged, and they stay returned when those deny it. If they
/// do not reach the store, they stay spent.
///
/// ```
/// use tollgate::MemoryStore;
/// use tollgate_rules::{Descriptor, Format, RuleLimiter, RuleSet, Rules};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = RuleSet::parse(
///     "{domain: shop, descriptors: [{key: tenant, rate_limit: {quota: 100/h}}]}",
///     Format::Yaml,
/// )?;
/// let limiter = RuleLimiter::new(Rules::new(rules), MemoryStore::new());
/// let tenant = Descriptor::from([("tenant", "acme")]);
///
/// let left = |decision: &tollgate_rules::RuleDecision| decision.verdict().statuses()[0].remaining();
/// assert_eq!(left(&limiter.check("shop", &[tenant.clone().with_hits(40)], 1).await?), 60);
/// assert_eq!(left(&limiter.check("shop", &[tenant.with_hits(30).refunding()], 1).await?), 90);
/// # Ok(()) }
/// ```
///
/// In the mode `envoy`, such a descriptor lowers the counter, which may stay above the limit, and
/// all descriptors count in the order of the request. Denials that a store over the network
/// remembers (`RedisStoreBuilder::deny_cache_cap`) do not raise the counter, as with the
/// local cache of Envoy's service.
///
/// A clone is cheap, and shares the rules and the store.
#[derive(Clone)]
pub struct RuleLimiter(pub(super) Arc<RuleLimiterInner>);

/// What each descriptor was charged, and its outcome.
type Decided = (
    Vec<Option<ChargedDescriptor>>,
    Vec<Option<DescriptorOutcome>>,
);

pub(super) struct RuleLimiterInner {
    pub(super) rules: Rules,
    pub(super) modes: GlobalModes,
    pub(super) denied_keys: Option<DeniedKeys>,
    pub(super) default: Limiter,
    /// The limiters for rules with another answer in an outage.
    pub(super) open: Limiter,
    pub(super) closed: Limiter,
    pub(super) local: Limiter,
    pub(super) steps: Steps,
    pub(super) exceeded: Exceeded,
}

impl RuleLimiter {
    /// Returns the rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Spends units of all descriptors, and decides the request.
    ///
    /// Each descriptor spends `hits` units, unless it has [`hits`](Descriptor::hits) of its own. 0
    /// counts as 1. One set of rules decides the whole request, also during a reload. A check of
    /// more units than a limit ever has is denied.
    ///
    /// # Errors
    ///
    /// - [`CheckError::Request`] when the domain is empty, or when there are no descriptors.
    /// - [`CheckError::Store`] when the store failed and a limit is [closed](Outage::Closed) in an
    ///   outage. Descriptors that were charged are then refunded.
    ///
    /// # Cancellation
    ///
    /// A dropped future may have spent units of some or all descriptors.
    pub async fn check(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        hits: u32,
    ) -> Result<RuleDecision, CheckError> {
        let rules = self.0.rules.current();
        Ok(self
            .check_plan(&rules.plan(domain, descriptors, hits)?)
            .await?)
    }

    /// Spends units of all descriptors of a plan, and decides the request.
    ///
    /// Use it in place of [`check`](Self::check) where the answer needs the
    /// [rule](crate::Match::rule) of each descriptor.
    ///
    /// # Errors
    ///
    /// Fails when the store failed and a limit is [closed](Outage::Closed) in an outage.
    /// Descriptors that were charged are then refunded.
    ///
    /// # Cancellation
    ///
    /// A dropped future may have spent units of some or all descriptors.
    pub async fn check_plan(&self, plan: &Plan<'_>) -> Result<RuleDecision, Error> {
        // What other requests need is boxed: see `charge` in `steps.rs`.
        let Some(planned) = plan.only() else {
            return Box::pin(self.check_several(plan)).await;
        };
        let limiter = |rule: &Rule| self.limiter(rule);
        let (outcome, decision) = match Pending::of(0, planned, plan, limiter) {
            Some(pending) => {
                let (outcome, decision) = pending.decide(planned.hits()).await?;
                (Some(outcome), decision.ok())
            }
            None => (blocked_outcome(planned), None),
        };
        let verdict = plan.verdict(&[outcome], self.0.modes);
        self.record(plan, &[outcome], &verdict);
        Ok(RuleDecision::new(verdict, smallvec![decision]))
    }

    /// Decides any request: one of several descriptors, one that gives units back, and one in the mode
    /// `envoy`.
    async fn check_several(&self, plan: &Plan<'_>) -> Result<RuleDecision, Error> {
        let (verdict, charges) = self.decide_plan(plan).await?;
        let decisions = charges
            .into_iter()
            .map(|charge| charge.and_then(|charge| charge.decision.ok()))
            .collect();
        Ok(RuleDecision::new(verdict, decisions))
    }

    /// Decides a request. Returns what each descriptor was charged, which is refunded when the
    /// request is denied.
    pub(super) async fn decide_plan(
        &self,
        plan: &Plan<'_>,
    ) -> Result<(Verdict, Vec<Option<ChargedDescriptor>>), Error> {
        let mut parts = plan.parts();
        let first = parts.next().unwrap_or_default();
        let (mut charges, mut outcomes) = self.decide_part(plan, first).await?;
        for part in parts {
            match self.decide_part(plan, part).await {
                Ok((of_part, outcomes_of_part)) => {
                    charges.extend(of_part);
                    outcomes.extend(outcomes_of_part);
                }
                Err(error) => {
                    refund(&charges).await;
                    return Err(error);
                }
            }
        }
        let verdict = plan.verdict(&outcomes, self.0.modes);
        self.record(plan, &outcomes, &verdict);
        if verdict.code() == Code::OverLimit && !plan.compat().is_envoy() {
            refund(&charges).await;
        }
        Ok((verdict, charges))
    }

    /// Gives back and charges the units of descriptors that are decided together. Returns what each
    /// one was charged, and its outcome.
    async fn decide_part(&self, plan: &Plan<'_>, part: &[Planned<'_>]) -> Result<Decided, Error> {
        let limiter = |rule: &Rule| self.limiter(rule);
        let returned = give_back(plan, part, &self.0.exceeded, limiter).await?;
        let mut charges = charge(plan, part, &self.0.steps, self.0.modes, limiter).await?;
        let mut outcomes = settle(plan, part, &charges, &self.0.exceeded).await;
        for (place, outcome, charge) in returned {
            (charges[place], outcomes[place]) = (charge, Some(outcome));
        }
        Ok((charges, outcomes))
    }

    /// Counts the units of each rule, and the keys that are over a limit.
    pub(super) fn record(
        &self,
        plan: &Plan<'_>,
        outcomes: &[Option<DescriptorOutcome>],
        verdict: &Verdict,
    ) {
        for ((planned, outcome), status) in plan.iter().zip(outcomes).zip(verdict.statuses()) {
            let Some(found) = planned.charged() else {
                continue;
            };
            self.0.rules.record(found, status.usage());
            // Also in shadow mode, as a limiter in a layer in shadow mode does: see whom the rule
            // would deny.
            let is_over = outcome.is_some_and(|outcome| outcome.is_over());
            if let Some(denied_keys) = self.0.denied_keys.as_ref().filter(|_| is_over) {
                denied_keys.record(&found.key());
            }
        }
    }

    /// Returns the limiter with the answer that a rule has in an outage.
    pub(super) fn limiter(&self, rule: &Rule) -> &Limiter {
        match rule.on_outage() {
            Some(Outage::Open) => &self.0.open,
            Some(Outage::Closed) => &self.0.closed,
            Some(_) => &self.0.local,
            None => &self.0.default,
        }
    }
}

tollgate::debug_fields! { RuleLimiter: rules = .0.rules, modes = .0.modes, .. }

#[cfg(not(feature = "http"))]
impl RuleLimiter {
    /// Names the feature `http`, with which the method returns limits for the requests of a layer.
    ///
    /// Without the feature it cannot be called: no type is a `NeedsHttp`, so the compiler reports
    /// what is missing.
    #[must_use]
    pub fn for_requests<N: NeedsHttp>(&self, _: N) -> N {
        unreachable!("no type implements the trait")
    }
}

/// Has no implementation. Its error names the feature.
#[cfg(not(feature = "http"))]
#[diagnostic::on_unimplemented(
    message = "`RuleLimiter::for_requests` needs the feature `http` of the crate tollgate-rules",
    label = "needs the feature `http`, or `axum` or `tonic`"
)]
pub trait NeedsHttp {}
