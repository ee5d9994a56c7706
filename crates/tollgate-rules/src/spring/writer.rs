//! Writes the rule of each route, from its filters, the default filters and the settings of the
//! gateway.
//! What the settings are was read before, in `reader.rs`.

use std::{collections::HashSet, fmt::Write as _, time::Duration};

use tollgate::{Algorithm, Error, Policy, Quota};

use super::{
    settings::{Bucket, Filter, Numbers, Settings},
    values::Values,
};
use crate::{RuleErrorKind, document::short, names::policy_name};

/// The route whose bucket under `redis-rate-limiter.config` routes without one have.
const DEFAULT_ROUTE: &str = "defaultFilters";
/// The name of the policy of routes that are not in the file.
const DEFAULT_NAME: &str = "default-filters";

impl Settings {
    /// Returns the text of the rules. A limit with a mistake is left out, and the mistake is
    /// reported.
    pub(super) fn rules(&self, values: &mut Values<'_>) -> String {
        let mut limits = String::new();
        let mut ids = HashSet::new();
        for route in &self.routes {
            let filters: Vec<_> = self.default_filters.iter().chain(&route.filters).collect();
            let Some(last) = filters.last() else { continue };
            let mut refuse = |kind, message: String| {
                values.refuse(kind, &format!("{}.id", route.field), route.at, message);
            };
            let id = match &route.id {
                Some(id) if id.contains('*') => {
                    refuse(
                        RuleErrorKind::Value,
                        format!("must not contain *, got {:?}", short(id)),
                    );
                    continue;
                }
                Some(id) if !ids.insert(id.as_str()) => {
                    let id = short(id);
                    let message = format!(
                        "two routes have the id {id:?}, and the gateway gives both the numbers of the last"
                    );
                    refuse(RuleErrorKind::Duplicate, message);
                    continue;
                }
                Some(id) => id,
                None => {
                    refuse(
                        RuleErrorKind::Value,
                        "is missing, a limited route needs an id".to_owned(),
                    );
                    continue;
                }
            };
            match self.bucket(&filters, Some(id)) {
                Some(bucket) => limits.extend(self.limit(Some(id), &filters, bucket, values)),
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
        let filters: Vec<_> = self.default_filters.iter().collect();
        if let Some(bucket) = self.bucket(&filters, None) {
            limits.extend(self.limit(None, &filters, bucket, values));
        }
        let descriptors = if limits.is_empty() { " []\n" } else { "\n" };
        format!("domain: spring\ndescriptors:{descriptors}{limits}")
    }

    /// Returns the bucket of a route: that of its last filter which has one, or else of the
    /// settings of the gateway.
    fn bucket(&self, filters: &[&Filter], route: Option<&str>) -> Option<Bucket> {
        let config = |name: &str| self.config.get(name).copied();
        if filters.is_empty() {
            return None;
        }
        let of_filter = filters.iter().rev().find_map(|filter| filter.bucket);
        of_filter
            .or_else(|| route.and_then(config))
            .or_else(|| config(DEFAULT_ROUTE))
    }

    /// Returns the rule of a route, or of all routes that are not in the file.
    fn limit(
        &self,
        route: Option<&str>,
        filters: &[&Filter],
        bucket: Bucket,
        values: &mut Values<'_>,
    ) -> Option<String> {
        let numbers = bucket?;
        let (first, last) = (filters.first()?, filters.last()?);
        let mut refuse =
            |message: String| values.refuse(RuleErrorKind::Value, &last.field, last.at, message);
        if filters
            .iter()
            .any(|filter| filter.key_resolver != first.key_resolver)
        {
            refuse("filters of one route with different key resolvers are not read, write rules for them".to_owned());
            return None;
        }
        let cost = numbers
            .requested_tokens
            .saturating_mul(filters.len() as u64);
        if numbers.burst_capacity > 0 && cost > numbers.burst_capacity {
            let burst = numbers.burst_capacity;
            refuse(format!(
                "a request spends {cost} units, above burst-capacity ({burst}): every request is denied, write \
                 burst-capacity: 0 if that is meant"
            ));
            return None;
        }
        let limit = numbers
            .limit(route.unwrap_or(DEFAULT_NAME))
            .map_err(|error| refuse(error.to_string()))
            .ok()?;
        let mut text = format!("# A request costs {cost}. {}", self.empty_key(filters));
        // Writing to memory cannot fail.
        if let Some(status) = &first.status {
            let _ = write!(text, " A denial is answered with {:?}.", short(status));
        }
        if let Some(resolver) = &first.key_resolver {
            let _ = write!(text, " The key is that of {:?}.", short(resolver));
        }
        text.push_str("\n- key: route\n");
        if let Some(route) = route {
            let _ = writeln!(text, "  value: {}", quoted(route));
        }
        let _ = writeln!(
            text,
            "  descriptors:\n  - key: key\n    rate_limit: {limit}"
        );
        Some(text)
    }

    /// Says what the first filter that denies an empty key does.
    fn empty_key(&self, filters: &[&Filter]) -> String {
        let denies = |filter: &&&Filter| {
            filter
                .deny_empty_key
                .or(self.deny_empty_key)
                .unwrap_or(true)
        };
        let Some(filter) = filters.iter().find(denies) else {
            return "Without a key it passes.".to_owned();
        };
        let status = filter
            .empty_key_status
            .as_ref()
            .or(self.empty_key_status.as_ref());
        format!(
            "Without a key it is answered with {:?}.",
            short(status.map_or("403", String::as_str))
        )
    }
}

impl Numbers {
    /// Returns the limit of a bucket. One that holds nothing denies every request.
    fn limit(self, name: &str) -> Result<String, Error> {
        let Self {
            replenish_rate: rate,
            burst_capacity: burst,
            ..
        } = self;
        let quoted_name = quoted(name);
        if burst == 0 {
            return Ok(format!(
                "{{name: {quoted_name}, window: 1s, requests_per_unit: 0}}"
            ));
        }
        // The gateway's bucket is filled once a second and holds no more than the burst, so a
        // greater rate adds nothing.
        let algorithm = if rate > burst {
            Algorithm::IntervalBucket
        } else {
            Algorithm::TokenBucket
        };
        let quota = Quota::try_new(rate, Duration::from_secs(1))?.try_with_burst(burst)?;
        Policy::try_new(policy_name(name), algorithm, quota)?;
        Ok(format!(
            "{{name: {quoted_name}, window: 1s, algorithm: {algorithm}, requests_per_unit: {rate}, burst: {burst}}}"
        ))
    }
}

/// Returns a text in quotation marks. Signs that a terminal obeys are escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for sign in text.chars() {
        match sign {
            '"' | '\\' => quoted.extend(['\\', sign]),
            _ if sign.is_alphanumeric() || sign.is_ascii_graphic() || sign == ' ' => {
                quoted.push(sign);
            }
            _ => quoted.push_str(&format!("\\U{:08x}", u32::from(sign))),
        }
    }
    quoted + "\""
}
