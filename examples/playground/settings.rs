//! The settings of a pane: policies, and the answer in an outage.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::{Algorithm, Error, Lease, Outage, Policy, PolicySet, Quota};

use crate::problem::FieldError;

/// The largest amount and the largest burst. They bound the memory of a sliding log, and keep the
/// plot readable.
const MAX_UNITS: u64 = 10_000;

/// The number of sub-windows of sliding buckets, unless the settings name another.
const BUCKETS: u16 = 10;

/// The terms of leased policies. Half of the burst may be out, because the demo has small bursts.
const LEASE: Lease = Lease::new().generation(Duration::from_secs(2)).share(2);

/// Describes the limits of a pane.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaneSettings {
    pub(crate) policies: Vec<PolicySettings>,
    #[serde(default)]
    pub(crate) outage: OutageAnswer,
}

/// Describes one policy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicySettings {
    name: String,
    algorithm: AlgorithmName,
    amount: u64,
    period_ms: u64,
    /// Equals the amount if it is missing. Only the bucket algorithms have another one.
    #[serde(default)]
    burst: Option<u64>,
    /// Is set for sliding buckets alone.
    #[serde(default)]
    buckets: Option<u16>,
    /// Lets the example take units in advance, so that most requests need no call to Redis.
    #[serde(default)]
    leased: bool,
}

/// Names an algorithm as the page does: without arguments.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "&'static str")]
pub(crate) struct AlgorithmName(pub(crate) Algorithm);

/// Names the answers to a check that the store cannot decide.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutageAnswer {
    #[default]
    Local,
    Open,
    Closed,
}

impl PaneSettings {
    /// Returns settings of one policy, as the page shows them at first.
    pub(crate) fn of(algorithm: AlgorithmName) -> Self {
        let burst = algorithm.has_burst().then_some(10);
        let amount = if algorithm.has_burst() { 5 } else { 10 };
        let period_ms = if algorithm.has_burst() { 1_000 } else { 2_000 };
        let policy = PolicySettings {
            name: "demo".to_owned(),
            algorithm,
            amount,
            period_ms,
            burst,
            buckets: None,
            leased: false,
        };
        Self {
            policies: vec![policy],
            outage: OutageAnswer::default(),
        }
    }

    /// Builds the policies.
    ///
    /// # Errors
    ///
    /// Names every field that is refused, with its value.
    pub(crate) fn build(&self) -> Result<PolicySet, Vec<FieldError>> {
        let (mut policies, mut errors) = (Vec::new(), Vec::new());
        // A set has 8 policies at most. The errors of the ninth and later ones would only hide
        // that.
        for (at, policy) in self.policies.iter().take(9).enumerate() {
            match policy.build() {
                Ok(policy) => policies.push(policy),
                Err((field, value, message)) => {
                    errors.push(FieldError::new(
                        format!("policies[{at}].{field}"),
                        value,
                        message,
                    ));
                }
            }
        }
        let count = self.policies.len();
        if count > policies.len() && errors.is_empty() {
            let message = format!("policies must be 1 to 8 in a set, got {count}");
            return Err(vec![FieldError::new("policies", count, message)]);
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        PolicySet::try_new(policies)
            .map_err(|error| vec![FieldError::new("policies", count, error.to_string())])
    }

    pub(crate) fn outage(&self) -> Outage {
        match self.outage {
            OutageAnswer::Local => Outage::default(),
            OutageAnswer::Open => Outage::Open,
            OutageAnswer::Closed => Outage::Closed,
        }
    }
}

/// Names the field of a policy, its value and the reason.
type Invalid = (&'static str, String, String);

impl PolicySettings {
    fn build(&self) -> Result<Policy, Invalid> {
        for (field, units) in [("amount", Some(self.amount)), ("burst", self.burst)] {
            if let Some(units) = units.filter(|units| *units > MAX_UNITS) {
                let message =
                    format!("{field} must be at most {MAX_UNITS} in the playground, got {units}");
                return Err((field, units.to_string(), message));
            }
        }
        let quota = Quota::try_new(self.amount, Duration::from_millis(self.period_ms));
        let quota = quota.and_then(|quota| match self.burst {
            Some(burst) => quota.try_with_burst(burst),
            None => Ok(quota),
        });
        let buckets = self.buckets.unwrap_or(BUCKETS);
        let policy = quota
            .and_then(|quota| Policy::try_new(&self.name, self.algorithm.build(buckets), quota));
        let leased = |policy: Policy| {
            if self.leased {
                policy.try_leased(LEASE)
            } else {
                Ok(policy)
            }
        };
        policy
            .and_then(leased)
            .map_err(|error| self.invalid(&error))
    }

    /// Finds the field that an error of the library names.
    fn invalid(&self, error: &Error) -> Invalid {
        let message = error.to_string();
        let burst = self.burst.unwrap_or(self.amount);
        let fields = [
            ("policy name", "name", self.name.clone()),
            ("lease", "leased", self.leased.to_string()),
            (
                "a leaky bucket cannot be leased",
                "leased",
                self.leased.to_string(),
            ),
            (
                "policy buckets",
                "buckets",
                self.buckets.unwrap_or(BUCKETS).to_string(),
            ),
            ("policy quota burst", "burst", burst.to_string()),
            ("policy quota amount", "amount", self.amount.to_string()),
            ("quota burst", "burst", burst.to_string()),
            ("quota period", "period_ms", self.period_ms.to_string()),
        ];
        let named = fields
            .into_iter()
            .find(|(start, ..)| message.starts_with(start));
        let (_, field, value) = named.unwrap_or(("", "amount", self.amount.to_string()));
        (field, value, message)
    }
}

impl AlgorithmName {
    fn has_burst(self) -> bool {
        self.0.has_burst()
    }

    fn build(self, buckets: u16) -> Algorithm {
        match self.0 {
            Algorithm::SlidingBuckets { .. } => Algorithm::SlidingBuckets { buckets },
            other => other,
        }
    }
}

impl TryFrom<String> for AlgorithmName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        // Sliding buckets have their number in a field of its own.
        let text = if name == "sliding_buckets" {
            format!("{name}({BUCKETS})")
        } else {
            name
        };
        text.parse().map(Self)
    }
}

impl From<AlgorithmName> for &'static str {
    fn from(name: AlgorithmName) -> Self {
        name.0.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the only error of settings with one changed policy.
    fn error(change: impl FnOnce(&mut PolicySettings)) -> FieldError {
        let mut settings = PaneSettings::of(AlgorithmName(Algorithm::TokenBucket));
        change(&mut settings.policies[0]);
        let mut errors = settings.build().expect_err("the settings are refused");
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors.remove(0)
    }

    #[test]
    fn each_refused_field_is_named_with_its_value() {
        let cases = [
            (
                error(|policy| policy.amount = 1 << 32),
                "amount",
                "4294967296",
            ),
            (error(|policy| policy.burst = Some(0)), "burst", "0"),
            (
                error(|policy| policy.burst = Some(10_001)),
                "burst",
                "10001",
            ),
            (error(|policy| policy.period_ms = 0), "period_ms", "0"),
            (
                error(|policy| policy.period_ms = u64::MAX),
                "period_ms",
                "18446744073709551615",
            ),
            (
                error(|policy| policy.name = "two words".to_owned()),
                "name",
                "two words",
            ),
            (
                error(|policy| policy.algorithm = AlgorithmName(Algorithm::FixedWindow)),
                "burst",
                "10",
            ),
            (error(|policy| policy.leased = true), "leased", "true"),
            (
                error(|policy| {
                    (policy.leased, policy.algorithm) =
                        (true, AlgorithmName(Algorithm::LeakyBucket));
                }),
                "leased",
                "true",
            ),
        ];
        for (error, field, value) in cases {
            assert_eq!(
                error.field,
                format!("policies[0].{field}"),
                "{}",
                error.message
            );
            assert_eq!(error.value, value);
            let named = if field == "leased" {
                "lease"
            } else {
                field.trim_end_matches("_ms")
            };
            assert!(error.message.contains(named), "{}", error.message);
        }
        let error = error(|policy| {
            (policy.algorithm, policy.burst, policy.buckets) = (
                AlgorithmName(Algorithm::SlidingBuckets { buckets: BUCKETS }),
                None,
                Some(0),
            );
        });
        assert_eq!(
            (error.field.as_str(), error.value.as_str()),
            ("policies[0].buckets", "0")
        );
    }

    #[test]
    fn a_set_has_one_to_eight_policies_of_different_names() {
        let mut settings = PaneSettings::of(AlgorithmName(Algorithm::SlidingLog));
        settings.policies = vec![settings.policies[0].clone(); 100];
        for (at, policy) in settings.policies.iter_mut().enumerate() {
            policy.name = format!("p{at}");
        }
        let errors = settings.build().expect_err("100 policies are too many");
        assert_eq!(
            errors[0].message,
            "policies must be 1 to 8 in a set, got 100"
        );
        settings.policies.truncate(8);
        assert_eq!(settings.build().expect("8 policies are a set").len(), 8);
        settings.policies[1].name = "p0".to_owned();
        assert!(
            settings.build().expect_err("a name twice")[0]
                .message
                .contains(r#""p0" twice"#)
        );
        settings.policies.clear();
        assert_eq!(
            settings.build().expect_err("no policy")[0].message,
            "policies must be 1 to 8 in a set, got 0"
        );
    }
}
