//! Puts the limit of each route together from its filters, the default filters and the settings of the gateway.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use tollgate::{Algorithm, Error, Policy, Quota};

use super::{
    gateway::Gateway,
    route_limit::{EmptyKey, RouteLimit},
    rule_tree::tree,
    settings::{Bucket, Filter, Numbers, Settings},
    values::Values,
};
use crate::{
    RuleErrorKind, RuleErrors,
    compile::{Options, compile},
    document::short,
    names::policy_name,
};

/// The limits of all routes, once every mistake was reported.
pub(super) struct Assembled {
    limits: Vec<RouteLimit>,
}

/// The route whose bucket under `redis-rate-limiter.config` routes without one have.
const DEFAULT_ROUTE: &str = "defaultFilters";
/// The name of the policy of routes that are not in the file.
const DEFAULT_NAME: &str = "default-filters";

const FORBIDDEN: u16 = 403;
const TOO_MANY_REQUESTS: u16 = 429;

pub(super) fn assemble(settings: &Settings, values: &mut Values<'_>) -> Assembled {
    let mut limits: Vec<RouteLimit> = Vec::new();
    let mut ids = HashSet::new();
    for route in &settings.routes {
        let filters: Vec<_> = settings.default_filters.iter().chain(&route.filters).collect();
        let Some(last) = filters.last() else { continue };
        let field = format!("{}.id", route.field);
        let id = match &route.id {
            Some(id) if id.contains('*') => {
                values.refuse(
                    RuleErrorKind::Value,
                    &field,
                    route.at,
                    format!("must not contain *, got {:?}", short(id)),
                );
                continue;
            }
            Some(id) if !ids.insert(id.as_str()) => {
                let id = short(id);
                let message =
                    format!("two routes have the id {id:?}, and the gateway gives both the numbers of the last");
                values.refuse(RuleErrorKind::Duplicate, &field, route.at, message);
                continue;
            }
            Some(id) => id,
            None => {
                values.refuse(RuleErrorKind::Value, &field, route.at, "is missing, a limited route needs an id");
                continue;
            }
        };
        match settings.bucket(&filters, Some(id)) {
            Some(bucket) => limits.extend(settings.limit(Some(id), &filters, bucket, values)),
            None => {
                let id = short(id);
                let message = format!(
                    "has no numbers, expected redis-rate-limiter.replenish-rate here or in redis-rate-limiter.config.{id}; \
                     a limit that is set in Java is not in the file"
                );
                values.refuse(RuleErrorKind::Value, &last.field, last.at, message);
            }
        }
    }
    let filters: Vec<_> = settings.default_filters.iter().collect();
    if let Some(bucket) = settings.bucket(&filters, None) {
        limits.extend(settings.limit(None, &filters, bucket, values));
    }
    Assembled { limits }
}

impl Settings {
    /// Returns the bucket of a route: that of its last filter which has one, or else of the settings of the gateway.
    fn bucket(&self, filters: &[&Filter], route: Option<&str>) -> Option<Bucket> {
        let config = |name: &str| self.config.get(name).copied();
        if filters.is_empty() {
            return None;
        }
        let of_filter = filters.iter().rev().find_map(|filter| filter.bucket);
        of_filter.or_else(|| route.and_then(config)).or_else(|| config(DEFAULT_ROUTE))
    }

    fn limit(
        &self,
        route: Option<&str>,
        filters: &[&Filter],
        bucket: Bucket,
        values: &mut Values<'_>,
    ) -> Option<RouteLimit> {
        let numbers = bucket?;
        let (first, last) = (filters.first()?, filters.last()?);
        if filters.iter().any(|filter| filter.key_resolver != first.key_resolver) {
            let message = "filters of one route with different key resolvers are not read, write rules for them";
            values.refuse(RuleErrorKind::Value, &last.field, last.at, message);
            return None;
        }
        let cost = numbers.requested_tokens.saturating_mul(filters.len() as u64);
        if numbers.burst_capacity > 0 && cost > numbers.burst_capacity {
            let burst = numbers.burst_capacity;
            let message = format!(
                "a request spends {cost} units, above burst-capacity ({burst}): every request is denied, write \
                 burst-capacity: 0 if that is meant"
            );
            values.refuse(RuleErrorKind::Value, &last.field, last.at, message);
            return None;
        }
        let policy = match policy(route.unwrap_or(DEFAULT_NAME), numbers) {
            Ok(policy) => policy,
            Err(error) => {
                values.refuse(RuleErrorKind::Value, &last.field, last.at, error.to_string());
                return None;
            }
        };
        Some(RouteLimit {
            route: route.map(Into::into),
            policy,
            replenish_rate: numbers.replenish_rate,
            burst_capacity: numbers.burst_capacity,
            requested_tokens: numbers.requested_tokens,
            filters: filters.len() as u64,
            key_resolver: first.key_resolver.as_deref().map(Into::into),
            empty_key: self.empty_key(filters),
            status: first.status.unwrap_or(TOO_MANY_REQUESTS),
            at: last.at,
        })
    }

    /// Returns the answer of the first filter that denies an empty key.
    fn empty_key(&self, filters: &[&Filter]) -> EmptyKey {
        let denies = |filter: &&&Filter| filter.deny_empty_key.or(self.deny_empty_key).unwrap_or(true);
        match filters.iter().find(denies) {
            Some(filter) => EmptyKey::Deny(filter.empty_key_status.or(self.empty_key_status).unwrap_or(FORBIDDEN)),
            None => EmptyKey::Allow,
        }
    }
}

/// Makes the policy of a bucket, and `None` for a bucket that holds nothing.
fn policy(name: &str, numbers: Numbers) -> Result<Option<Policy>, Error> {
    if numbers.burst_capacity == 0 {
        return Ok(None);
    }
    let (rate, burst) = (numbers.replenish_rate, numbers.burst_capacity);
    // The gateway's bucket is filled once a second and holds no more than the burst, so a greater rate adds nothing.
    let algorithm = if rate > burst { Algorithm::IntervalBucket } else { Algorithm::TokenBucket };
    let quota = Quota::try_new(rate, Duration::from_secs(1))?.try_with_burst(burst)?;
    Policy::try_new(policy_name(name), algorithm, quota).map(Some)
}

impl Assembled {
    /// Makes the rules of the limits.
    pub(super) fn gateway(self, file: Option<Arc<Path>>) -> Result<Gateway, RuleErrors> {
        let Self { limits } = self;
        let rules =
            compile(&Options::default(), [(file, Ok(tree(&limits, Gateway::DOMAIN, DEFAULT_NAME)))], &mut Vec::new())?;
        let routes = limits.iter().enumerate();
        let by_route: HashMap<_, _> = routes.filter_map(|(at, limit)| Some((limit.route.clone()?, at))).collect();
        let default = limits.iter().position(|limit| limit.route.is_none());
        Ok(Gateway { rules: rules.into(), limits, by_route, default })
    }
}
