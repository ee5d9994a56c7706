//! Reads `rate_limit`: a window of the language, or one of the forms that Tollgate adds.
//! Other fields of a descriptor are read in `descriptor.rs`. The finished limit is a type of
//! `rule.rs`.

use std::{str::FromStr, time::Duration};

#[cfg(feature = "calendar")]
use tollgate::CalendarUnit;
use tollgate::{Algorithm, Policy, PolicySet, Quota};

use super::{
    compiler::Compiler,
    errors::Trail,
    fields::{listed, similar},
    lease::LeaseField,
};
use crate::{
    Unit,
    document::{Field, Node, Scalar, Value, short},
    error::Position,
    names::policy_name,
    rule::Limit,
};

/// A checked `rate_limit`.
pub(super) struct RateLimit {
    pub(super) limit: Limit,
    pub(super) name: Option<Box<str>>,
    pub(super) replaces: Box<[Box<str>]>,
}

/// The most requests in one window of Envoy's service.
const MOST_ENVOY: u64 = u32::MAX as u64;

/// The fields of a `rate_limit` or of one of its `limits`.
#[derive(Default)]
struct LimitFields<'n> {
    unit: Option<&'n Node>,
    requests: Option<u64>,
    is_unlimited: Option<Position>,
    name: Option<Box<str>>,
    replaces: Box<[Box<str>]>,
    quota: Option<(QuotaText, Position)>,
    window: Option<(Duration, Position)>,
    burst: Option<(u64, Position)>,
    algorithm: Option<(Algorithm, Position)>,
    /// The name of the time zone in which the windows begin.
    time_zone: Option<(Box<str>, Position)>,
    /// The local time at which one of the windows begins.
    begins: Option<(Box<str>, Position)>,
    lease: Option<LeaseField>,
    is_unranked: bool,
    is_hidden: bool,
    limits: Option<&'n Node>,
    /// A field has a mistake that was reported already.
    is_broken: bool,
}

/// The field `quota`. A quota does not keep whether its text had a burst: that of `5/min burst 5` is
/// that of `5/min`.
#[derive(Clone, Copy)]
struct QuotaText {
    quota: Quota,
    has_burst: bool,
}

impl FromStr for QuotaText {
    type Err = tollgate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self {
            quota: text.parse()?,
            // No other part of a valid text has this word.
            has_burst: text.contains("burst"),
        })
    }
}

const FIELDS: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
const ADDITIONS: [&str; 10] = [
    "quota",
    "window",
    "algorithm",
    "burst",
    "time_zone",
    "begins",
    "lease",
    "unranked",
    "hidden",
    "limits",
];

impl Compiler {
    /// Reads the `rate_limit` of the descriptor with this path.
    pub(super) fn rate_limit(
        &mut self,
        node: &Node,
        trail: &Trail<'_>,
        path: &str,
    ) -> Option<RateLimit> {
        let fields = self.map(node, trail)?;
        let mut read = self.read_limit(fields, trail, true);
        let (name, replaces) = (read.name.take(), std::mem::take(&mut read.replaces));
        // Clients see the name in header fields. The domain is part of the key.
        let base = name.as_deref().unwrap_or(path);
        let limit = if let Some(at) = read.is_unlimited {
            self.check_unlimited(&read, trail, at);
            Some(Limit::Unlimited)
        } else if let Some(list) = read.limits {
            let alone = [
                "unit",
                "requests_per_unit",
                "quota",
                "window",
                "burst",
                "algorithm",
                "time_zone",
                "begins",
                "lease",
                "unranked",
                "hidden",
            ];
            self.refuse_beside(fields, trail, "limits", &alone);
            self.limits(list, &trail.field("limits"), base)
        } else {
            self.limit(&read, fields, trail, node.at, &policy_name(base))
                .map(|policy| Limit::of(policy.into()))
        };
        limit.map(|limit| RateLimit {
            limit,
            name,
            replaces,
        })
    }

    fn read_limit<'n>(
        &mut self,
        fields: &'n [Field],
        trail: &Trail<'_>,
        is_whole: bool,
    ) -> LimitFields<'n> {
        let mut read = LimitFields::default();
        let before = self.errors.count();
        for field in fields {
            let (node, trail) = (&field.node, trail.field(&field.name));
            match field.name.as_str() {
                "unit" => read.unit = (!node.is_null()).then_some(node),
                "requests_per_unit" => {
                    let most = if self.compat.is_envoy() {
                        MOST_ENVOY
                    } else {
                        Quota::MAX_AMOUNT
                    };
                    read.requests = self.number(node, &trail, 0, most);
                }
                "unlimited" if is_whole => {
                    read.is_unlimited = self.boolean(node, &trail).then_some(node.at);
                }
                "name" => read.name = self.text(node, &trail).filter(|name| !name.is_empty()),
                "replaces" if is_whole => read.replaces = self.replaces(node, &trail, fields),
                "limits" if is_whole && self.is_addition(field, &trail) => read.limits = Some(node),
                "quota" if self.is_addition(field, &trail) => {
                    read.quota = self.parse(node, &trail).map(|quota| (quota, node.at));
                }
                "window" if self.is_addition(field, &trail) => {
                    read.window = self.window(node, &trail);
                }
                "algorithm" if self.is_addition(field, &trail) => {
                    read.algorithm = self
                        .parse(node, &trail)
                        .map(|algorithm| (algorithm, node.at));
                }
                "burst" if self.is_addition(field, &trail) => {
                    read.burst = self
                        .number(node, &trail, 1, Quota::MAX_AMOUNT)
                        .map(|burst| (burst, node.at));
                }
                "time_zone" if self.is_addition(field, &trail) => {
                    read.time_zone = self.text(node, &trail).map(|zone| (zone, node.at));
                }
                "begins" if self.is_addition(field, &trail) => {
                    read.begins = self.text(node, &trail).map(|begins| (begins, node.at));
                }
                "lease" if self.is_addition(field, &trail) => read.lease = self.lease(node, &trail),
                "unranked" if self.is_addition(field, &trail) => {
                    read.is_unranked = self.boolean(node, &trail);
                }
                "hidden" if self.is_addition(field, &trail) => {
                    read.is_hidden = self.boolean(node, &trail);
                }
                name if self.compat.is_envoy() && ADDITIONS.contains(&name) => {}
                _ if is_whole => self.unknown(field, &trail, &FIELDS, &ADDITIONS),
                _ => self.unknown(
                    field,
                    &trail,
                    &["unit", "requests_per_unit", "name"],
                    &ADDITIONS[..9],
                ),
            }
        }
        read.is_broken = self.errors.count() > before;
        read
    }

    fn replaces(&mut self, node: &Node, trail: &Trail<'_>, fields: &[Field]) -> Box<[Box<str>]> {
        let own = fields
            .iter()
            .find(|field| field.name == "name")
            .and_then(|field| match &field.node.value {
                Value::Scalar(Scalar::Text(text)) => Some(&**text),
                _ => None,
            });
        let mut names = Vec::new();
        for (at, item) in self.list(node, trail).iter().enumerate() {
            let trail = trail.item(at);
            let Some(fields) = self.map(item, &trail) else {
                continue;
            };
            let mut name = Some(Box::default());
            for field in fields {
                match field.name.as_str() {
                    "name" => name = self.text(&field.node, &trail.field("name")),
                    _ => self.unknown(field, &trail.field(&field.name), &["name"], &[]),
                }
            }
            let Some(name): Option<Box<str>> = name else {
                continue;
            };
            let refused = match &*name {
                "" => "must not be empty",
                name if own == Some(name) => "must not be the name of the same limit",
                _ => {
                    names.push(name);
                    continue;
                }
            };
            self.errors.refuse(trail.field("name"), item.at, refused);
        }
        names.into()
    }

    /// Reads a text that has a grammar of its own.
    fn parse<T: FromStr<Err = tollgate::Error>>(
        &mut self,
        node: &Node,
        trail: &Trail<'_>,
    ) -> Option<T> {
        let text = self.text(node, trail)?;
        self.errors.accept(trail, node.at, text.parse())
    }

    pub(super) fn window(
        &mut self,
        node: &Node,
        trail: &Trail<'_>,
    ) -> Option<(Duration, Position)> {
        let text = self.text(node, trail)?;
        let period = Quota::parse_period(&text);
        let period = self.errors.accept(trail, node.at, period)?;
        Some((period, node.at))
    }

    fn refuse_beside(&mut self, fields: &[Field], trail: &Trail<'_>, one: &str, others: &[&str]) {
        for field in fields
            .iter()
            .filter(|field| others.contains(&field.name.as_str()))
        {
            let message = format!("must not stand beside {one}");
            self.errors
                .refuse(trail.field(&field.name), field.at, message);
        }
    }

    fn check_unlimited(&mut self, read: &LimitFields<'_>, trail: &Trail<'_>, at: Position) {
        let has_unit = read.unit.is_some_and(|node| {
            let unit = match &node.value {
                Value::Scalar(Scalar::Text(text)) => text.parse::<Unit>().is_ok(),
                _ => false,
            };
            // Envoy's service accepts an unknown unit here.
            unit || !self.compat.is_envoy()
        });
        let is_limited = read.quota.is_some() || read.window.is_some() || read.limits.is_some();
        if has_unit || is_limited || read.lease.is_some() {
            let message = "must not stand beside unit, quota, window, lease or limits";
            self.errors.refuse(trail.field("unlimited"), at, message);
        }
    }

    /// Reads several limits of one descriptor.
    fn limits(&mut self, list: &Node, trail: &Trail<'_>, base: &str) -> Option<Limit> {
        let before = self.errors.count();
        let mut policies = Vec::new();
        for (at, item) in self.list(list, trail).iter().enumerate() {
            let trail = trail.item(at);
            let Some(fields) = self.map(item, &trail) else {
                continue;
            };
            let mut read = self.read_limit(fields, &trail, false);
            let named = read.name.take();
            let period = read.period_text();
            let name = policy_name(&named.map_or_else(|| format!("{base}.{period}"), String::from));
            policies.extend(self.limit(&read, fields, &trail, item.at, &name));
        }
        if self.errors.count() > before {
            return None;
        }
        match PolicySet::try_new(policies) {
            Ok(set) => Some(Limit::of(set)),
            Err(error) => {
                let mut message = error.to_string();
                if message.contains("must differ in name") {
                    message.push_str("; limits of one period need a name each");
                }
                self.errors.refuse(trail, list.at, message);
                None
            }
        }
    }

    /// Makes the policy of one limit.
    fn limit(
        &mut self,
        read: &LimitFields<'_>,
        fields: &[Field],
        trail: &Trail<'_>,
        at: Position,
        name: &str,
    ) -> Option<Policy> {
        let others = ["quota", "burst", "algorithm", "window"];
        match (&read.time_zone, &read.begins) {
            (Some(_), None) => self.refuse_beside(fields, trail, "time_zone", &others),
            (Some(_), Some(_)) => self.refuse_beside(fields, trail, "begins", &others[..3]),
            (None, Some((_, at))) => {
                let message = "needs a time_zone beside it";
                self.errors.refuse(trail.field("begins"), *at, message);
                return None;
            }
            (None, None) => {}
        }
        if let Some((QuotaText { quota, has_burst }, at)) = read.quota {
            self.refuse_beside(
                fields,
                trail,
                "quota",
                &["unit", "requests_per_unit", "window", "burst"],
            );
            let policy = self.policy(
                name,
                quota,
                has_burst,
                read.algorithm,
                &trail.field("quota"),
                at,
            )?;
            return self.finished(policy, read, trail);
        }
        if read.is_broken {
            return None;
        }
        let (period, at) = match (read.window, read.unit) {
            (Some(window), None) => window,
            (Some(_), Some(_)) => {
                self.refuse_beside(fields, trail, "window", &["unit"]);
                return None;
            }
            (None, Some(node)) => (self.unit(node, &trail.field("unit"))?.duration(), node.at),
            (None, None) => {
                let message = format!(
                    "is missing, expected {}",
                    listed(Unit::ALL.iter().map(|unit| unit.as_str()))
                );
                self.errors.refuse(trail.field("unit"), at, message);
                return None;
            }
        };
        let requests = match read.requests {
            None if self.compat.is_envoy() => 0,
            None => {
                let message = "is missing, write 0 to deny every request";
                self.errors
                    .refuse(trail.field("requests_per_unit"), at, message);
                return None;
            }
            Some(requests) => requests,
        };
        let algorithm = match &read.time_zone {
            Some((_, at)) => Some((self.calendar(period, read, trail)?, *at)),
            None => read.algorithm,
        };
        let quota = Quota::try_new(requests, period).and_then(|quota| match read.burst {
            Some((burst, _)) => quota.try_with_burst(burst),
            None => Ok(quota),
        });
        // In Envoy's service, a counter belongs to the texts of the request, and not to the rule.
        let unit = Unit::from_duration(period).filter(|_| self.compat.is_envoy());
        let name = unit.map_or(name, |unit| unit.as_str());
        let quota = self.errors.accept(trail, at, quota)?;
        let policy = self.policy(name, quota, read.burst.is_some(), algorithm, trail, at)?;
        self.finished(policy, read, trail)
    }

    /// Adds to a policy what follows from no quota: its lease, its rank and who sees it.
    fn finished(
        &mut self,
        policy: Policy,
        read: &LimitFields<'_>,
        trail: &Trail<'_>,
    ) -> Option<Policy> {
        let mut policy = self.leased(policy, read.lease.as_ref(), trail)?;
        if read.is_unranked {
            policy = policy.unranked();
        }
        if read.is_hidden {
            policy = policy.hidden();
        }
        Some(policy)
    }

    /// Makes a policy. Without an algorithm it counts in fixed windows, and where a burst is stated
    /// it is a token bucket, whatever the burst.
    fn policy(
        &mut self,
        name: &str,
        quota: Quota,
        has_burst: bool,
        algorithm: Option<(Algorithm, Position)>,
        trail: &Trail<'_>,
        at: Position,
    ) -> Option<Policy> {
        let default = if has_burst {
            Algorithm::TokenBucket
        } else {
            Algorithm::FixedWindow
        };
        let (algorithm, at) = algorithm.unwrap_or((default, at));
        let policy = Policy::try_new(name, algorithm, quota);
        self.errors.accept(trail, at, policy)
    }

    /// Returns the algorithm of windows that begin with a period of the calendar in a time zone, or
    /// at a time of their own.
    #[cfg(feature = "calendar")]
    fn calendar(
        &mut self,
        period: Duration,
        read: &LimitFields<'_>,
        trail: &Trail<'_>,
    ) -> Option<Algorithm> {
        let (zone, at) = read.time_zone.as_ref()?;
        let units = || CalendarUnit::ALL.into_iter();
        let unit = match read.window {
            None => units().find(|unit| unit.nominal() == period),
            Some(_) => Some(CalendarUnit::Day)
                .filter(|day| period.as_micros().is_multiple_of(day.nominal().as_micros())),
        };
        let Some(unit) = unit else {
            let message = match read.window {
                None => "needs the unit day, week, month or year",
                Some(_) => "needs a window of whole days",
            };
            self.errors.refuse(trail.field("time_zone"), *at, message);
            return None;
        };
        let errors = &mut self.errors;
        let zone = errors.accept(trail.field("time_zone"), *at, zone.parse());
        let anchor = match &read.begins {
            Some((text, at)) => Some(errors.accept(trail.field("begins"), *at, text.parse())?),
            None => None,
        };
        Some(Algorithm::CalendarWindow {
            unit,
            zone: zone?,
            anchor,
        })
    }

    #[cfg(not(feature = "calendar"))]
    fn calendar(
        &mut self,
        _: Duration,
        read: &LimitFields<'_>,
        trail: &Trail<'_>,
    ) -> Option<Algorithm> {
        let (_, at) = read.time_zone.as_ref()?;
        let message = "needs the feature calendar of tollgate-rules";
        self.errors.refuse(trail.field("time_zone"), *at, message);
        None
    }

    fn unit(&mut self, node: &Node, trail: &Trail<'_>) -> Option<Unit> {
        let text = self.text(node, trail)?;
        if let Ok(unit) = text.parse() {
            return Some(unit);
        }
        let names = || Unit::ALL.iter().map(|unit| unit.as_str());
        let mut message = format!(
            "unknown unit {:?}, expected {}",
            short(&text),
            listed(names())
        );
        if let Some(name) = similar(&text, names()) {
            message.push_str(&format!("; did you mean {name}?"));
        } else if !self.compat.is_envoy() && Quota::parse_period(&text).is_ok() {
            message.push_str(&format!("; write window: {text}"));
        }
        self.errors.refuse(trail, node.at, message);
        None
    }
}

impl LimitFields<'_> {
    /// Returns the period as text, for the name of a policy.
    fn period_text(&self) -> String {
        let unit = self.unit.and_then(|node| match &node.value {
            Value::Scalar(Scalar::Text(text)) => text.parse::<Unit>().ok(),
            _ => None,
        });
        let period = self
            .quota
            .map(|(text, _)| text.quota.period())
            .or(self.window.map(|(period, _)| period));
        let period = period
            .or(unit.map(Unit::duration))
            .and_then(|period| Quota::try_new(1, period).ok());
        let text = period.map(|quota| quota.to_string()).unwrap_or_default();
        text.split_once('/')
            .map(|(_, period)| period.to_owned())
            .unwrap_or_default()
    }
}
