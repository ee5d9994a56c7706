//! Limits HTTP and gRPC requests by rules, in a layer.
//! The layer itself is that of tollgate-tower. Descriptors are made in `actions/`.

use std::sync::Arc;

use http::request::Parts;
use tollgate::{Error, ErrorKind, Key, Priority, store::StoreFuture};
use tollgate_tower::{
    JointCheck, JointDecision, JointFuture, LimiterSource,
    key::{KeyError, NetworkVerdict},
};

use super::{rule_limiter::RuleLimiter, steps::ChargedDescriptor};
use crate::{ClientIp, Code, Descriptors, GlobalModes, Plan, RequestError, Verdict};

/// Limits the requests of a layer by the rules of one domain.
///
/// [`RuleLimiter::for_requests`] creates it. Pass it to
/// [`RateLimitLayer`](tollgate_tower::RateLimitLayer) for HTTP, or to `tollgate_tonic::layer` for
/// gRPC, in place of a limiter. The layer answers as it does with fixed limits: with the status,
/// `Retry-After`, the rate limit header fields and the problem document, or with the gRPC status
/// and its details. A reload is in force with the next request.
///
/// The rules make the keys, so the layer does not use its key extractor. Pass
/// [`Global`](tollgate_tower::key::Global).
///
/// ```
/// use http::{Request, Response};
/// use tollgate::MemoryStore;
/// use tollgate_rules::{Format, RuleLimiter, RuleSet, Rules};
/// use tollgate_tower::{RateLimitLayer, key::Global};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules = RuleSet::parse(
///     "
///     domain: shop
///     rate_limits:
///       - actions:
///           - request_headers: {header_name: x-tenant, descriptor_key: tenant}
///     descriptors:
///       - key: tenant
///         rate_limit: {name: tenants, quota: 1/h}
///     ",
///     Format::Yaml,
/// )?;
/// let limiter = RuleLimiter::new(Rules::new(rules), MemoryStore::new());
/// let service = RateLimitLayer::new(limiter.for_requests("shop"), Global)
///     .layer(service_fn(|_: Request<()>| async { Ok::<_, std::convert::Infallible>(Response::new(String::new())) }));
///
/// let request = |tenant| Request::builder().header("x-tenant", tenant).body(()).unwrap();
/// let allowed = service.clone().oneshot(request("acme")).await?;
/// assert_eq!(allowed.headers()["ratelimit-policy"], r#""tenants";q=1;w=3600"#);
/// let denied = service.clone().oneshot(request("acme")).await?;
/// assert_eq!(denied.status(), 429);
/// assert!(denied.headers().contains_key("retry-after"));
/// assert_eq!(service.oneshot(request("other")).await?.status(), 200);
/// # Ok(()) }
/// ```
///
/// # What a client sees
///
/// The response to an allowed request lists the policies of all its descriptors. The response to a
/// denied request lists the policies that deny it. Clients do not see rules in shadow mode, and
/// quota rules that alone do not deny. The metrics count such rules with the outcome `shadowed`. A
/// rule of 0 requests denies with 429 and without `Retry-After`.
///
/// A request without a descriptor, or whose descriptors match no limit, passes without header
/// fields.
///
/// # The options of the layer
///
/// - Each descriptor spends the [cost](tollgate_tower::RateLimitBuilder::cost) of the layer, unless
///   it has [`hits`](crate::Descriptor::hits) of its own. A cost of 0 tests the limits: the request
///   is denied when one has no unit left.
/// - A request has the [priority](tollgate_tower::RateLimitBuilder::priority) of the layer, unless
///   it belongs to a [class](crate::PriorityClass) of the file. Leased limits have no priorities,
///   and neither has the mode `envoy`: the response is 500, and the mistake is logged once.
/// - With an [enforcement](tollgate_tower::RateLimitBuilder::enforcement), a limit denies when both
///   the rule and the layer enforce it for the [key](crate::Match::key) of its descriptor. Any
///   other limit counts as in shadow mode.
/// - A [`StateService`](tollgate_tower::StateService) shows the policies of all descriptors of the
///   request. A rule of 0 requests has no policy.
///
/// [`LimiterSource::from_decider`] lists the options that have no effect.
#[derive(Clone, Debug)]
#[must_use = "the rules limit nothing until a layer uses them"]
pub struct RequestRules {
    limiter: RuleLimiter,
    domain: Arc<str>,
    client_ip: Arc<ClientIp>,
    descriptors: Option<Arc<Descriptors>>,
}

impl RuleLimiter {
    /// Returns limits for the requests of a layer, by the rules of `domain`.
    ///
    /// The field `rate_limits` of the domain's file says how descriptors are made from requests. In
    /// code, [`descriptors`](RequestRules::descriptors) does the same. Without both, a layer
    /// answers with 500, and logs the reason once.
    pub fn for_requests(&self, domain: impl Into<Arc<str>>) -> RequestRules {
        RequestRules {
            limiter: self.clone(),
            domain: domain.into(),
            client_ip: Arc::default(),
            descriptors: None,
        }
    }
}

impl RequestRules {
    /// Sets how descriptors are made from requests, in place of the field `rate_limits` of the
    /// file.
    pub fn descriptors(mut self, descriptors: impl Into<Descriptors>) -> Self {
        self.descriptors = Some(Arc::new(descriptors.into()));
        self
    }

    /// Sets where the address of a client is read. The default is the peer of the connection.
    pub fn client_ip(mut self, client_ip: impl Into<ClientIp>) -> Self {
        self.client_ip = Arc::new(client_ip.into());
        self
    }
}

impl RequestRules {
    fn decide(&self, parts: &Parts, check: JointCheck) -> Result<JointFuture, KeyError> {
        // One set makes the descriptors and decides them.
        let set = self.limiter.rules().current();
        if set.compat().is_envoy() && check.priority() < Priority::CRITICAL {
            return Err(KeyError::misconfigured(
                "the rules are in the mode envoy, which has no priorities",
            ));
        }
        if set.fair_shares(&self.domain).is_some() && check.priority() < Priority::CRITICAL {
            return Err(KeyError::misconfigured(
                "the rules have fair shares, under which requests have no priority of the layer",
            ));
        }
        if check.costs().customer().is_some() {
            return Err(KeyError::misconfigured(
                "the customer of the layer has no share of the limits of rules: write fair_shares into the rules",
            ));
        }
        let mut has_networks = true;
        if let Some(networks) = set.networks(&self.domain) {
            let address = self.client_ip.address(parts)?;
            match networks.verdict(address) {
                NetworkVerdict::Allowed => return Ok(StoreFuture::ready(Ok(None))),
                NetworkVerdict::Denied => {
                    // The key that an address has by default.
                    let key = Key::network(address, 64);
                    if !self.limiter.0.modes.shadow && check.is_enforced(&key) {
                        return Ok(StoreFuture::ready(Ok(Some(JointDecision::forbidden(key)))));
                    }
                    has_networks = false;
                }
                _ => {}
            }
        }
        let from_code = self.descriptors.as_deref();
        let descriptors = from_code
            .or_else(|| set.descriptors(&self.domain))
            .ok_or_else(|| {
                let domain = &self.domain;
                KeyError::misconfigured(format!(
                    "the rules have no rate_limits in domain {domain:?}, and the code has none"
                ))
            })?;
        let descriptors: Vec<_> = descriptors
            .extract(parts, &self.client_ip)?
            .into_iter()
            .map(|descriptor| {
                let hits = descriptor.hits().unwrap_or(check.cost().units());
                descriptor.with_hits(hits).into_owned()
            })
            .collect();
        if descriptors.is_empty() {
            return Ok(StoreFuture::ready(Ok(None)));
        }
        let (limiter, domain) = (self.limiter.clone(), Arc::clone(&self.domain));
        let (is_look, records_spans) = (check.is_look(), check.records_spans());
        Ok(StoreFuture::pending(async move {
            if domain.is_empty() {
                return Err(Error::new(
                    ErrorKind::Config,
                    RequestError::EmptyDomain.to_string(),
                ));
            }
            let plan = set.plan_in_layer(&domain, &descriptors, check, has_networks);
            let (verdict, charges) = limiter.decide_plan(&plan).await?;
            if records_spans {
                record_rule(&plan, &verdict);
            }
            Ok(joint(&plan, &verdict, charges, limiter.0.modes, is_look))
        }))
    }
}

impl From<RequestRules> for LimiterSource {
    fn from(rules: RequestRules) -> Self {
        Self::from_decider(move |parts, check| rules.decide(parts, check))
    }
}

/// Records the rule that denies in the span of the request, or else the first one that applies. The name
/// is that of the file.
#[cold]
fn record_rule(plan: &Plan<'_>, verdict: &Verdict) {
    let rules = || {
        let statuses = plan.iter().zip(verdict.statuses());
        statuses.filter_map(|(planned, status)| Some((planned.charged()?, status.code())))
    };
    let over = rules().find(|(_, code)| *code == Code::OverLimit);
    if let Some((found, _)) = over.or_else(|| rules().next()) {
        // The descriptor of a limit that the request brought along is its own.
        let name = match found.is_override() {
            true => "override",
            false => found.rule().metric_name(),
        };
        tracing::Span::current().record("rate_limit.rule", name);
    }
}

/// Returns the decisions of all descriptors as one. A look denies nothing, so it lists the limits
/// that are spent beside the others.
fn joint(
    plan: &Plan<'_>,
    verdict: &Verdict,
    charges: Vec<Option<ChargedDescriptor>>,
    modes: GlobalModes,
    is_look: bool,
) -> Option<JointDecision> {
    let is_allowed = is_look || verdict.code() == Code::Ok;
    let mut joint = if is_allowed {
        JointDecision::allowed()
    } else {
        JointDecision::denied()
    };
    let (mut blocked, mut never_fits, mut is_limited) = (None, None, false);
    for ((planned, status), charge) in plan.iter().zip(verdict.statuses()).zip(charges) {
        let is_over = status.code() == Code::OverLimit;
        let Some(ChargedDescriptor {
            limiter,
            key,
            decision,
            is_shadow,
            ..
        }) = charge
        else {
            blocked =
                blocked.or_else(|| is_over.then(|| planned.charged().map(|found| found.key())));
            continue;
        };
        is_limited = true;
        joint = match decision {
            // Passed descriptors of a denied request are refunded: the response lists those that
            // deny.
            Ok(decision) if !is_allowed && !is_over && decision.is_allowed() => joint,
            // A quota that is over its limit does not deny while another one is not.
            Ok(decision) if is_shadow || modes.shadow || (is_over && is_allowed && !is_look) => {
                joint.with_shadow(limiter, key, decision)
            }
            Ok(decision) => joint.with(limiter, key, decision),
            Err(error) => {
                never_fits = never_fits.or(is_over.then_some((key, error)));
                joint
            }
        };
    }
    if is_allowed {
        return (is_limited || blocked.is_some()).then_some(joint);
    }
    Some(match (blocked, never_fits) {
        // A network that the descriptors name has no key.
        (Some(key), _) => key.map_or_else(JointDecision::denied, JointDecision::blocked),
        (None, Some((key, error))) => JointDecision::never_fits(key, error),
        (None, None) => joint,
    })
}
