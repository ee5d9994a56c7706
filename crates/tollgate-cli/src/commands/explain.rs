//! `tollgate explain`: shows which rule applies to a request, and why.
//! The search itself is that of tollgate-rules. What a key has spent is shown by `peek.rs`.

use std::{fmt::Write as _, path::PathBuf};

use clap::Args;
use serde::Serialize;
use tollgate_operator::rules;
use tollgate_rules::{
    AttemptOutcome, Descriptor, Explanation, LevelTrace, Limit, MatchedBy, Planned, Rule, RuleSet,
    Treatment,
};

use crate::{
    failure::Failure,
    output::{Format, Report},
    rules::RuleOptions,
};

/// Shows which rule applies to a request, why, and which other rules were tried.
///
/// The entries of one descriptor stand one after the other. A single + begins the next descriptor
/// of the same request.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Explain {
    /// File or directory of rules
    file: PathBuf,

    /// Entries of the request's descriptors
    #[arg(required = true, value_name = "KEY=VALUE")]
    entries: Vec<String>,

    /// Selects the domain of the request, when the files have several
    #[arg(long)]
    domain: Option<String>,

    #[command(flatten)]
    rules: RuleOptions,
}

const EXAMPLES: &str = "\
Examples:
  tollgate explain rules.yaml tenant=gold route=/export
  tollgate explain rules.yaml tenant=gold + tenant=gold route=/export
  tollgate explain --domain shop config/ remote_address=192.0.2.7";

#[derive(Serialize)]
struct Explained<'a> {
    domain: &'a str,
    descriptors: Vec<DescriptorReport>,
}

#[derive(Serialize)]
struct DescriptorReport {
    levels: Vec<LevelReport>,
    outcome: String,
    treatment: &'static str,
    rule: Option<ExplainedRule>,
    /// The key of the counter, as it stands in Redis.
    key: Option<String>,
    #[serde(skip)]
    trace: String,
}

#[derive(Serialize)]
struct LevelReport {
    key: String,
    value: String,
    attempts: Vec<AttemptReport>,
}

#[derive(Serialize)]
struct AttemptReport {
    by: &'static str,
    pattern: Option<String>,
    place: Option<String>,
    outcome: &'static str,
}

#[derive(Serialize)]
struct ExplainedRule {
    metric: String,
    name: Option<String>,
    file: Option<PathBuf>,
    line: Option<u32>,
    is_shadow: bool,
    is_quota: bool,
    policies: Vec<PolicyReport>,
}

#[derive(Serialize)]
struct PolicyReport {
    name: String,
    algorithm: String,
    quota: String,
    is_leased: bool,
}

impl Explain {
    pub(crate) fn run(&self, format: Format) -> Result<Report, Failure> {
        let set = self.rules.load(&self.file)?;
        let domain = rules::domain(&set, self.domain.as_deref())?;
        let descriptors = descriptors(&self.entries)?;
        let plan = set.plan(domain, &descriptors, 1).map_err(Failure::new)?;
        let reports = descriptors
            .iter()
            .zip(plan.iter())
            .map(|(descriptor, planned)| {
                let explanation = set.explain(domain, descriptor);
                DescriptorReport::new(&set, domain, descriptor, &explanation, planned)
            });
        let explained = Explained {
            domain,
            descriptors: reports.collect(),
        };
        Ok(Report::new(format, &explained, || {
            let texts: Vec<_> = explained
                .descriptors
                .iter()
                .map(DescriptorReport::text)
                .collect();
            texts.join("\n")
        }))
    }
}

/// Reads the entries of descriptors that a `+` separates.
pub(crate) fn descriptors(entries: &[String]) -> Result<Vec<Descriptor<'_>>, Failure> {
    let mut descriptors = Vec::new();
    for entries in entries.split(|entry| entry == "+") {
        let mut descriptor = Descriptor::new();
        for entry in entries {
            match entry.split_once('=') {
                Some((key, value)) if !key.is_empty() => descriptor.push(key, value),
                _ => {
                    return Err(Failure::new(format_args!(
                        "entry {entry:?} must have the form KEY=VALUE"
                    )));
                }
            }
        }
        if descriptor.entries().is_empty() {
            return Err(Failure::new(
                "a descriptor must have an entry before and after each +",
            ));
        }
        descriptors.push(descriptor);
    }
    Ok(descriptors)
}

impl DescriptorReport {
    fn new(
        set: &RuleSet,
        domain: &str,
        descriptor: &Descriptor<'_>,
        explanation: &Explanation,
        planned: &Planned<'_>,
    ) -> Self {
        Self {
            levels: explanation.levels().iter().map(LevelReport::from).collect(),
            outcome: explanation.outcome().to_owned(),
            treatment: match planned.treatment() {
                Treatment::Unlimited => "unlimited",
                Treatment::Replaced => "replaced",
                Treatment::Charged => "charged",
                Treatment::NetworkAllowed => "network_allowed",
                Treatment::NetworkDenied => "network_denied",
                _ => "not_limited",
            },
            rule: planned
                .found()
                .map(|found| ExplainedRule::from(found.rule())),
            key: set
                .find(domain, descriptor)
                .map(|found| found.key().encoded().to_owned()),
            trace: explanation.to_string(),
        }
    }

    fn text(&self) -> String {
        let mut text = self.trace.clone();
        // Writing to memory cannot fail.
        if self.treatment == "network_allowed" {
            text.push_str("not applied, because the network of the client is allowed\n");
        }
        if self.treatment == "network_denied" {
            text.push_str(
                "not applied, because the network of the client is denied, and so is the request\n",
            );
        }
        if self.treatment == "replaced" {
            text.push_str("not applied, because another limit of the request replaces it\n");
        }
        let policies = self.rule.iter().flat_map(|rule| &rule.policies);
        for policy in policies {
            let leased = if policy.is_leased { " leased" } else { "" };
            let _ = writeln!(
                text,
                "policy {}: {} {}{leased}",
                policy.name, policy.algorithm, policy.quota
            );
        }
        if let (Some(key), true) = (&self.key, self.treatment == "charged") {
            let _ = writeln!(text, "counter key {key}");
        }
        text
    }
}

impl From<&LevelTrace> for LevelReport {
    fn from(level: &LevelTrace) -> Self {
        let attempts = level.attempts().iter().map(|attempt| AttemptReport {
            by: match attempt.by() {
                MatchedBy::Value => "value",
                MatchedBy::Pattern => "pattern",
                _ => "default",
            },
            pattern: attempt.pattern().map(str::to_owned),
            place: attempt.place().map(str::to_owned),
            outcome: match attempt.outcome() {
                AttemptOutcome::NoRule => "no_rule",
                AttemptOutcome::NoMatch => "no_match",
                AttemptOutcome::Selected => "selected",
                _ => "not_tried",
            },
        });
        Self {
            key: level.key().to_owned(),
            value: level.value().to_owned(),
            attempts: attempts.collect(),
        }
    }
}

impl From<&Rule> for ExplainedRule {
    fn from(rule: &Rule) -> Self {
        let policies = match rule.limit() {
            Limit::Policies(policies) => policies
                .iter()
                .map(|policy| PolicyReport {
                    name: policy.name().to_owned(),
                    algorithm: policy.algorithm().to_string(),
                    quota: policy.quota().to_string(),
                    is_leased: policy.lease().is_some(),
                })
                .collect(),
            _ => Vec::new(),
        };
        Self {
            metric: rule.metric_name().to_owned(),
            name: rule.name().map(str::to_owned),
            file: rule.file().map(Into::into),
            line: rule.line(),
            is_shadow: rule.is_shadow(),
            is_quota: rule.is_quota(),
            policies,
        }
    }
}
