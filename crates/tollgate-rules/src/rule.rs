//! A rule once it is read: its limit and its options, without the keys that lead to it.
//! It is read in `compile/`, and found for a request in `matching/`.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use tollgate::{Algorithm, Enforcement, Outage, Policy, PolicySet, Quota};

use crate::{Compat, LimitOverride, Unit, error::shown, metrics::RuleSeries};

/// One rule of a file: a limit and its options.
///
/// [`RuleSet::find`](crate::RuleSet::find) finds the rule for a descriptor of a request.
#[derive(Clone)]
pub struct Rule {
    pub(crate) limit: Limit,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) replaces: Box<[Box<str>]>,
    /// Applies to no key in shadow mode.
    pub(crate) enforcement: Enforcement,
    pub(crate) is_quota: bool,
    pub(crate) has_detailed_metric: bool,
    pub(crate) on_outage: Option<Outage>,
    pub(crate) metadata: Option<RuleMetadata>,
    pub(crate) metric: Box<str>,
    pub(crate) series: RuleSeries,
    pub(crate) origin: Option<Origin>,
}

/// The field `metadata` of a rule: any fields, which are returned for requests that pass.
pub type RuleMetadata = serde_json::Map<String, serde_json::Value>;

/// Selects what a rule allows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// Every request passes, and nothing is counted.
    Unlimited,
    /// Every request is denied, and nothing is counted, because the amount is 0:
    /// `requests_per_unit: 0` or `quota: 0/min`.
    Blocked {
        /// The period of that quota.
        period: Duration,
        /// Whether it is [hidden](Policy::hidden).
        is_hidden: bool,
    },
    /// Requests are counted against these policies. All of them have to allow a request.
    Policies(PolicySet),
}

impl fmt::Display for Limit {
    /// Writes the quotas as in `100/min and 5/s`, those of token buckets with their burst, a window of the calendar as in
    /// `10000/month in Europe/Berlin`, one that begins at a time of its own as in
    /// `10000/month in Europe/Lisbon from 2026-01-17T09:30`, and a leased quota as in
    /// `1000/s leased`. Ends in `unranked` for a quota that no priority ranks,
    /// and in `hidden` for one that clients do not see.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Blocked { .. } => f.write_str("0"),
            Self::Policies(policies) => {
                let texts: Vec<_> = policies.iter().map(quota_text).collect();
                f.write_str(&texts.join(" and "))
            }
        }
    }
}

/// Returns the text of the quota of a policy. The period of a window of the calendar is its unit,
/// because its length varies.
fn quota_text(policy: &Policy) -> String {
    let algorithm = policy.algorithm().to_string();
    let calendar = algorithm
        .strip_prefix("calendar_window(")
        .and_then(|parts| parts.strip_suffix(')'));
    let quota = match calendar.and_then(|parts| parts.split_once(", ")) {
        Some((unit, zone)) => {
            let is_one = |unit: Unit| unit.duration() == policy.quota().period();
            let quota = match unit.parse().is_ok_and(is_one) {
                true => format!("{}/{unit}", policy.quota().amount()),
                false => policy.quota().to_string(),
            };
            format!("{quota} in {}", zone.replace(", ", " from "))
        }
        None => {
            let quota = policy.quota();
            let is_bucket = policy.algorithm() == Algorithm::TokenBucket;
            // Without the burst, the same text in a file is a fixed window.
            let burst = (is_bucket && quota.burst() == quota.amount())
                .then(|| format!(" burst {}", quota.burst()));
            format!("{quota}{}", burst.unwrap_or_default())
        }
    };
    let leased = if policy.lease().is_some() {
        " leased"
    } else {
        ""
    };
    let unranked = if policy.is_ranked() { "" } else { " unranked" };
    let hidden = if policy.is_hidden() { " hidden" } else { "" };
    format!("{quota}{leased}{unranked}{hidden}")
}

impl Limit {
    /// Returns the limit of a fixed window.
    fn window(name: &str, requests: u64, unit: Unit) -> Self {
        let period = unit.duration();
        let quota = Quota::try_new(requests, period);
        match quota.and_then(|quota| Policy::try_new(name, Algorithm::FixedWindow, quota)) {
            Ok(policy) => Self::of(policy.into()),
            // No quota of 32 bits is refused.
            Err(_) => Self::Blocked {
                period,
                is_hidden: false,
            },
        }
    }

    /// Returns the limit of policies that are checked together.
    pub(crate) fn of(policies: PolicySet) -> Self {
        let blocked = policies.iter().find(|one| one.quota().is_blocked());
        match blocked {
            Some(policy) => Self::Blocked {
                period: policy.quota().period(),
                is_hidden: policy.is_hidden(),
            },
            None => Self::Policies(policies),
        }
    }
}

/// The file and the line of a rule.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) file: Option<Arc<Path>>,
    pub(crate) line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}:{}", shown(file), self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

impl Rule {
    /// Creates the rule of an override. It has no options.
    pub(crate) fn of_override(limit: LimitOverride, compat: Compat) -> Self {
        let (requests, unit) = (limit.requests().into(), limit.unit());
        // In Envoy's service, an override shares the counter of the rules.
        let name = if compat.is_envoy() {
            unit.to_string()
        } else {
            format!("override.{unit}")
        };
        Self {
            limit: Limit::window(&name, requests, unit),
            name: None,
            replaces: Box::default(),
            enforcement: Enforcement::default(),
            is_quota: false,
            has_detailed_metric: false,
            on_outage: None,
            metadata: None,
            metric: Box::default(),
            series: RuleSeries::default(),
            origin: None,
        }
    }

    /// Returns what the rule allows.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the policies, and `None` when nothing is counted.
    #[must_use]
    pub fn policies(&self) -> Option<&PolicySet> {
        match &self.limit {
            Limit::Policies(policies) => Some(policies),
            _ => None,
        }
    }

    /// Returns the amount and the period of the first policy: 0 units for a blocked rule, `None`
    /// for an unlimited one.
    #[must_use]
    pub fn amount(&self) -> Option<(u64, Duration)> {
        match &self.limit {
            Limit::Unlimited => None,
            Limit::Blocked { period, .. } => Some((0, *period)),
            Limit::Policies(policies) => policies
                .iter()
                .next()
                .map(|policy| (policy.quota().amount(), policy.quota().period())),
        }
    }

    /// Returns the [amount](Self::amount) of the first policy that clients may see.
    pub(crate) fn shown_amount(&self) -> Option<(u64, Duration)> {
        match &self.limit {
            Limit::Policies(policies) => policies
                .iter()
                .find(|policy| !policy.is_hidden())
                .map(|policy| (policy.quota().amount(), policy.quota().period())),
            Limit::Blocked { is_hidden, .. } if *is_hidden => None,
            _ => self.amount(),
        }
    }

    /// Returns the length of the window as a [`Unit`]. `None` when no unit has this length, or when
    /// the rule is unlimited.
    #[must_use]
    pub fn unit(&self) -> Option<Unit> {
        self.amount()
            .and_then(|(_, period)| Unit::from_duration(period))
    }

    /// Returns the name of the limit, by which another rule can replace it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the names of the limits that do not apply to a request to which this one applies.
    pub fn replaces(&self) -> impl ExactSizeIterator<Item = &str> {
        self.replaces.iter().map(AsRef::as_ref)
    }

    /// Returns whether every request over the limit passes, and is only counted.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.enforced_percent() == 0
    }

    /// Returns the percentage of the keys for which the limit is [enforced](Enforcement): 0 in
    /// shadow mode, and 100 without the field `enforce`.
    #[must_use]
    pub fn enforced_percent(&self) -> u8 {
        self.enforcement.percent()
    }

    /// Returns whether the rule is in quota mode: it denies a request only together with all other
    /// quotas of the request.
    #[must_use]
    pub fn is_quota(&self) -> bool {
        self.is_quota
    }

    /// Returns the answer to a check during an outage of the store. `None` when the
    /// [limiter](crate::RuleLimiterBuilder::on_outage) decides.
    #[must_use]
    pub fn on_outage(&self) -> Option<Outage> {
        self.on_outage
    }

    /// Returns the metadata.
    #[must_use]
    pub fn metadata(&self) -> Option<&RuleMetadata> {
        self.metadata.as_ref()
    }

    /// Returns the name of the rule in metrics: the domain, and the keys and configured values of
    /// each level.
    ///
    /// The name holds no value of a request, unlike
    /// [`Match::metric_name`](crate::Match::metric_name).
    #[must_use]
    pub fn metric_name(&self) -> &str {
        &self.metric
    }

    /// Returns the file of the rule, and `None` for a rule that was not read from a file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.origin
            .as_ref()
            .and_then(|origin| origin.file.as_deref())
    }

    /// Returns the line of the rule in its file, from 1. `None` for a limit that the request
    /// brought along ([`LimitOverride`]).
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        self.origin.as_ref().map(|origin| origin.line)
    }
}

tollgate::debug_fields! { Rule: metric_name = .metric, limit, name, .. }
