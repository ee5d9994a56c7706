//! The last half of a decision: the outcomes of all descriptors become the answer to the request,
//! with its status for each.
//! What was charged is decided before, in `plan.rs`; one outcome comes from `outcome.rs`.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{DescriptorOutcome, Plan, Planned, Treatment};
use crate::{RuleMetadata, Unit, metrics::Usage};

/// The decision for a request or a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The request or the descriptor passes.
    Ok,
    /// The request or the descriptor exceeds a limit.
    OverLimit,
}

/// Modes that apply to all rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalModes {
    /// Every request passes. The codes of the descriptors still show which of them exceed a limit.
    pub shadow: bool,
    /// Every descriptor is a quota descriptor, also one without a limit.
    pub quota: bool,
}

/// The answer to a request: whether it passes, and the status of each descriptor.
#[derive(Clone, Debug)]
pub struct Verdict {
    code: Code,
    statuses: Vec<Status>,
    is_shadowed: bool,
    nearest: Option<usize>,
    metadata: RuleMetadata,
}

/// The answer for one descriptor: its code, its limit, and the units that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    code: Code,
    limit: Option<CurrentLimit>,
    remaining: u64,
    reset_after: Option<Duration>,
    usage: Usage,
}

/// Describes the limit of a descriptor in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentLimit {
    requests: u64,
    period: Duration,
    name: Option<Arc<str>>,
}

impl Plan<'_> {
    /// Combines the outcomes of all descriptors that were charged into the answer to the request.
    ///
    /// The request is over its limit when a descriptor exceeds a limit that is not in quota mode.
    /// It is also over its limit when there are quota descriptors and all of them exceed theirs. A
    /// limit in [shadow mode](crate::Match::is_shadow), or one that is not enforced for the key,
    /// never counts as exceeded.
    ///
    /// `outcomes` has one element for each descriptor. Elements of descriptors that were not
    /// [charged](Planned::charged) are ignored. A descriptor without an outcome counts as one
    /// without a limit.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use tollgate_rules::{Code, Compat, Descriptor, DescriptorOutcome, Format, GlobalModes, RuleSet};
    ///
    /// let rules = RuleSet::parse(
    ///     "{domain: shop, descriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 5}}]}",
    ///     Format::Yaml,
    /// )?;
    /// let request = [Descriptor::from([("tenant", "acme")])];
    /// let plan = rules.plan("shop", &request, 0).unwrap();
    /// let outcome = |after| DescriptorOutcome::from_count(5, Duration::from_secs(60), after, 1, Duration::ZERO, Compat::Native);
    ///
    /// let verdict = plan.verdict(&[Some(outcome(5))], GlobalModes::default());
    /// assert_eq!((verdict.code(), verdict.statuses()[0].remaining()), (Code::Ok, 0));
    /// let verdict = plan.verdict(&[Some(outcome(6))], GlobalModes::default());
    /// assert_eq!(verdict.code(), Code::OverLimit);
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn verdict(&self, outcomes: &[Option<DescriptorOutcome>], modes: GlobalModes) -> Verdict {
        let outcomes = outcomes.iter().copied().chain(std::iter::repeat(None));
        let statuses: Vec<_> = self
            .planned
            .iter()
            .zip(outcomes)
            .map(|(planned, outcome)| planned.status(self, outcome))
            .collect();

        let (mut is_over, mut quotas, mut failed_quotas) = (false, 0, 0);
        let mut nearest: Option<(usize, u64)> = None;
        let mut merged = RuleMetadata::new();
        for (at, (planned, status)) in self.planned.iter().zip(&statuses).enumerate() {
            let least = nearest.map_or(u64::from(u32::MAX), |(_, remaining)| remaining);
            if status.limit.is_some() && status.remaining < least {
                nearest = Some((at, status.remaining));
            }
            match planned.treatment {
                Treatment::Unlimited | Treatment::NetworkAllowed => continue,
                Treatment::NetworkDenied => {
                    is_over = true;
                    continue;
                }
                _ => {}
            }
            let rule = planned.charged().map(|found| found.rule());
            let is_quota = modes.quota || rule.is_some_and(|rule| rule.is_quota());
            quotas += usize::from(is_quota);
            match status.code {
                Code::OverLimit if is_quota => failed_quotas += 1,
                Code::OverLimit => {
                    is_over = true;
                    // A denial that shows no limit hides none that denies, too.
                    let denies = |at: usize| statuses[at].code == Code::OverLimit;
                    if status.limit.is_some() || !nearest.is_some_and(|(at, _)| denies(at)) {
                        nearest = Some((at, 0));
                    }
                }
                Code::Ok => {
                    if let Some(metadata) = planned.charged().and_then(|found| found.metadata()) {
                        merge(&mut merged, metadata);
                    }
                }
            }
        }
        let is_over = is_over || (quotas > 0 && quotas == failed_quotas);
        Verdict {
            code: if is_over && !modes.shadow {
                Code::OverLimit
            } else {
                Code::Ok
            },
            statuses,
            is_shadowed: is_over && modes.shadow,
            nearest: nearest.map(|(at, _)| at),
            metadata: merged,
        }
    }
}

impl Planned<'_> {
    fn status(&self, plan: &Plan<'_>, outcome: Option<DescriptorOutcome>) -> Status {
        let passed = Status {
            code: Code::Ok,
            limit: None,
            remaining: 0,
            reset_after: None,
            usage: Usage::default(),
        };
        if self.treatment == Treatment::Unlimited {
            return Status {
                remaining: u32::MAX.into(),
                ..passed
            };
        }
        if self.treatment == Treatment::NetworkDenied {
            return Status {
                code: Code::OverLimit,
                ..passed
            };
        }
        let (Some(found), Some(outcome)) = (self.charged(), outcome) else {
            return passed;
        };
        let rule = found.rule();
        let is_shadowed = outcome.is_over && (found.is_shadow() || !plan.is_enforced(&found.key()));
        let amount = rule.shown_amount().filter(|_| !outcome.is_hidden);
        Status {
            code: if outcome.is_over && !is_shadowed {
                Code::OverLimit
            } else {
                Code::Ok
            },
            limit: amount.map(|(requests, period)| CurrentLimit {
                requests,
                period,
                name: rule.name.clone(),
            }),
            remaining: if outcome.is_over || amount.is_none() {
                0
            } else {
                outcome.remaining
            },
            reset_after: Some(outcome.reset_after),
            usage: if is_shadowed {
                outcome.usage.in_shadow_mode()
            } else {
                outcome.usage
            },
        }
    }
}

impl Verdict {
    /// Returns whether the request passes.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the answer for each descriptor, in the order of the request.
    #[must_use]
    pub fn statuses(&self) -> &[Status] {
        &self.statuses
    }

    /// Returns whether the request passes only because of the global shadow mode.
    #[must_use]
    pub fn is_shadowed(&self) -> bool {
        self.is_shadowed
    }

    /// Returns the status that header fields show. `None` when no descriptor has a limit. A request
    /// that only [hidden](tollgate::Policy::hidden) limits deny has a status without a limit.
    ///
    /// When the request is denied, the last descriptor that denied it has the status. When the
    /// request passes, the descriptor with the fewest units left has it.
    #[must_use]
    pub fn nearest(&self) -> Option<&Status> {
        self.statuses.get(self.nearest?)
    }

    /// Returns the metadata of all limits whose descriptors pass. When several have the same field,
    /// the first one is kept.
    #[must_use]
    pub fn metadata(&self) -> &RuleMetadata {
        &self.metadata
    }
}

impl Status {
    /// Returns whether the descriptor passes.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the limit. `None` when nothing was charged, and when the limit, or what denies the
    /// request, is [hidden](tollgate::Policy::hidden).
    #[must_use]
    pub fn limit(&self) -> Option<&CurrentLimit> {
        self.limit.as_ref()
    }

    /// Returns the units that are left: 2³² − 1 for an unlimited descriptor, and 0 for one without
    /// a limit, or whose limit is hidden.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the time until units return. `None` when nothing was charged.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        self.reset_after
    }

    /// Returns the units of the descriptor within, near and over the limit, for metrics.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }
}

impl CurrentLimit {
    /// Returns the units in one period.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the period.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns the period as a [`Unit`]. `None` when no unit has this length.
    #[must_use]
    pub fn unit(&self) -> Option<Unit> {
        Unit::from_duration(self.period)
    }

    /// Returns the name of the limit: the field `name` of its rule.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// Adds the fields of `other` that are missing. Mappings are joined, and of other values the first
/// is kept.
pub(super) fn merge(metadata: &mut RuleMetadata, other: &RuleMetadata) {
    for (name, value) in other {
        match (metadata.get_mut(name), value) {
            (None, value) => {
                metadata.insert(name.clone(), value.clone());
            }
            (Some(Value::Object(first)), Value::Object(second)) => merge(first, second),
            (Some(_), _) => {}
        }
    }
}

impl Plan<'_> {
    /// Describes the request and the metadata of its verdict, as the `dynamic_metadata` of Envoy's
    /// protocol.
    #[must_use]
    pub fn dynamic_metadata(&self, verdict: &Verdict) -> RuleMetadata {
        let descriptors = self.planned.iter().map(|planned| {
            let entries = planned.descriptor.entries().iter();
            let entries: Vec<_> = entries
                .map(|entry| format!("{}={}", entry.key(), entry.value()))
                .collect();
            let mut fields = RuleMetadata::new();
            fields.insert("entries".to_owned(), entries.into());
            if let Some(limit) = planned.descriptor.limit() {
                let unit = limit.unit().as_str().to_ascii_uppercase();
                fields.insert(
                    "limit".to_owned(),
                    format!("requests_per_unit:{} unit:{unit}", limit.requests()).into(),
                );
            }
            if let Some(hits) = planned.descriptor.hits() {
                fields.insert("hitsAddend".to_owned(), hits.into());
            }
            Value::Object(fields)
        });
        let mut metadata = RuleMetadata::new();
        metadata.insert("domain".to_owned(), json!(self.domain));
        metadata.insert("descriptors".to_owned(), descriptors.collect());
        if self.hits > 0 {
            metadata.insert("hitsAddend".to_owned(), self.hits.into());
        }
        if !verdict.metadata().is_empty() {
            metadata.insert(
                "metadata".to_owned(),
                Value::Object(verdict.metadata().clone()),
            );
        }
        metadata
    }
}
