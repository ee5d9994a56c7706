//! The limiters and the options of a layer, which all of its requests share.
//! What one request needs between two steps is in `request.rs`.

use std::{convert::Infallible, fmt, sync::Arc};

use foldhash::fast::RandomState;
use http::request::Parts;
use quick_cache::{
    UnitWeighter,
    sync::{Cache, DefaultLifecycle},
};
use tollgate_core::{Decision, Key, Limiter, PolicySet};

use crate::{
    gate::GateOptions,
    headers::{HeaderOptions, HeaderWriter, ResponseDetails, partition_key},
    metrics::{self, DecisionCounters, LabelIndex, LookedUpMetrics},
    outer_layers::DoubleCountDetector,
    rate_limit::{
        options::Options,
        source::{Decide, LimiterSource, LimiterTable, Lookup, Selector},
        span,
    },
    rejection::{Reason, Respond},
    rpc::RpcName,
};

/// Stores the limiters and the options of a layer, but not its key extractor and its responder: so
/// it has no type parameter, and the limiters of handlers and of requests hold it, too.
pub(crate) struct Limits {
    pub(super) fixed: Vec<FixedLimit>,
    pub(super) lookups: Vec<Lookup>,
    pub(super) deciders: Vec<Decide>,
    pub(super) selector: Selector,
    /// The profiles of policy sets that are looked up. A profile belongs to the content of a set,
    /// so tenants with equal policies share it.
    profiles: Cache<PolicySet, Arc<Profile>, UnitWeighter, RandomState>,
    looked_up: LookedUpMetrics,
    pub(super) options: Options,
    pub(super) gate: GateOptions<()>,
    pub(super) double_count: DoubleCountDetector,
}

/// Bounds the profiles. A service may have a policy set for each of its tenants.
const MAX_PROFILES: usize = 1024;

/// Takes a request through the steps of a layer: select, charge, check, judge and answer. The
/// methods are in `ask` and `reply`.
pub(crate) struct Steps<'a, B> {
    pub(super) limits: &'a Arc<Limits>,
    pub(super) responder: &'a dyn Respond<B>,
}

impl<B> Clone for Steps<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Steps<'_, B> {}

impl Limits {
    pub(crate) fn new(source: LimiterSource, options: Options, mut gate: GateOptions<()>) -> Self {
        let LimiterTable {
            fixed,
            lookups,
            deciders,
        } = source.limiters;
        if !deciders.is_empty() {
            options.warn_without_key();
        }
        gate.labels = source.labels.unwrap_or_default();
        let fixed = fixed.into_iter().map(|limiter| {
            let profile = Profile::new(
                limiter.policies(),
                &options.headers,
                DecisionCounters::new(&gate.labels),
            );
            FixedLimit { limiter, profile }
        });
        Self {
            fixed: fixed.collect(),
            lookups,
            deciders,
            selector: source.selector,
            profiles: Cache::with(
                MAX_PROFILES,
                MAX_PROFILES as u64,
                UnitWeighter,
                RandomState::default(),
                DefaultLifecycle::default(),
            ),
            looked_up: LookedUpMetrics::default(),
            options,
            gate,
            double_count: DoubleCountDetector::default(),
        }
    }

    /// Returns a limiter with what is kept for its policies.
    pub(super) fn limit(&self, limiter: Limiter) -> LimitRef {
        let profile = self.profile_of(limiter.policies());
        LimitRef::LookedUp(limiter, profile)
    }

    pub(super) fn profile_of(&self, policies: &PolicySet) -> Arc<Profile> {
        let create = || {
            let metrics = self.looked_up.of(policies, &self.gate.labels);
            Ok::<_, Infallible>(Arc::new(Profile::new(
                policies,
                &self.options.headers,
                metrics,
            )))
        };
        if let Some(profile) = self.profiles.get(policies) {
            return profile;
        }
        let Ok(profile) = self.profiles.get_or_insert_with(policies, create);
        profile
    }

    /// Logs the names of policies whose units are set, and which no limiter has. The limits of
    /// tenants may have any.
    #[cold]
    pub(super) fn warn_of_unknown_units(&self) {
        let has =
            |policies: &PolicySet, name: &str| policies.iter().any(|policy| policy.name() == name);
        for name in self
            .options
            .headers
            .units
            .named
            .iter()
            .map(|(name, _)| name)
        {
            let is_known = self
                .fixed
                .iter()
                .any(|limit| has(limit.limiter.policies(), name))
                || self
                    .profiles
                    .iter()
                    .any(|(policies, _)| has(&policies, name));
            if self.lookups.is_empty() && !is_known {
                tracing::warn!(
                    option = "quota_units",
                    policy = &**name,
                    "the option names a policy that the layer does not have, so its unit stands in no response"
                );
            }
        }
    }

    /// Returns the names of a call, as the log shows them.
    pub(super) fn rpc_name<'a>(&self, parts: &'a Parts) -> RpcName<&'a str> {
        self.options
            .rpc_name
            .as_ref()
            .and_then(|name| name(parts))
            .map_or(RpcName::NONE, RpcName::new)
    }

    /// Returns whether a request with this key is only counted.
    #[inline]
    pub(super) fn is_shadow(&self, key: &Key) -> bool {
        self.options
            .enforcement
            .as_ref()
            .is_some_and(|enforcement| !enforcement.applies_to(key))
    }

    /// Returns whether a request whose key is not known passes. It does until the limit is enforced
    /// for all keys.
    pub(super) fn is_shadow_without_key(&self) -> bool {
        self.options
            .enforcement
            .as_ref()
            .is_some_and(|enforcement| enforcement.percent() < 100)
    }

    /// Returns the details of a response to a request with this key.
    #[inline]
    pub(super) fn details(&self, key: Option<&Key>) -> ResponseDetails {
        let secret = &self.options.partition_secret;
        ResponseDetails {
            jitter: self.gate.jitter(),
            partition_key: secret
                .as_ref()
                .zip(key)
                .map(|(secret, key)| partition_key(key, secret)),
        }
    }

    /// Counts and logs a decision, which denies nothing in shadow mode.
    #[inline]
    pub(super) fn record_decision(
        &self,
        profile: &Profile,
        decision: &Decision,
        labels: LabelIndex,
        rpc: &RpcName<&str>,
        is_shadow: bool,
    ) {
        profile
            .metrics
            .record_decision(decision, &self.gate.labels, labels, is_shadow);
        if decision.is_denied() {
            tracing::debug!(
                name: "denied",
                policy = decision.strictest().map(|state| state.policy().name()),
                shadow = is_shadow,
                rpc.service = rpc.service,
                rpc.method = rpc.method,
                "denied"
            );
        }
    }

    /// Counts and logs that the service is not called.
    pub(super) fn record_rejection(
        &self,
        reason: Reason<'_>,
        labels: LabelIndex,
        rpc: &RpcName<&str>,
    ) {
        metrics::count_rejection(reason.as_str(), &self.gate.labels, labels);
        // `record_decision` logs denials, because it does so in shadow mode too.
        if !matches!(reason, Reason::Denied(_)) {
            let reason = reason.as_str();
            if self.options.records_spans {
                span::record_rejection(reason);
            }
            tracing::debug!(
                reason,
                rpc.service = rpc.service,
                rpc.method = rpc.method,
                "rejected"
            );
        }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = self
            .fixed
            .iter()
            .map(|limit| &limit.limiter as &dyn fmt::Debug);
        f.debug_list()
            .entries(fixed)
            .entries(&self.lookups)
            .finish()
    }
}

/// Stores a limiter that is the same for all requests.
pub(super) struct FixedLimit {
    pub(super) limiter: Limiter,
    profile: Profile,
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
    pub(super) limiter: &'a Limiter,
    pub(super) profile: &'a Profile,
}

impl LimitRef {
    /// Borrows the limiter. `fixed` lists the fixed ones.
    #[inline(always)]
    pub(super) fn get<'a>(&'a self, fixed: &'a [FixedLimit]) -> Limit<'a> {
        match self {
            Self::Fixed(at) => Limit {
                limiter: &fixed[*at].limiter,
                profile: &fixed[*at].profile,
            },
            Self::LookedUp(limiter, profile) => Limit { limiter, profile },
        }
    }
}

/// Stores the headers and the metrics of the decisions by one policy set.
pub(crate) struct Profile {
    pub(super) headers: HeaderWriter,
    metrics: DecisionCounters,
    pub(super) has_queue: bool,
}

impl Profile {
    fn new(policies: &PolicySet, headers: &Arc<HeaderOptions>, metrics: DecisionCounters) -> Self {
        let has_queue = policies.iter().any(|policy| policy.algorithm().is_queue());
        Self {
            headers: HeaderWriter::new(headers, policies),
            metrics,
            has_queue,
        }
    }
}
