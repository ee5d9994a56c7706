//! Finds the quota of a state: in rules, or by the name of its policy, as flags name it or services
//! publish it.
//! What services publish is read in `published.rs`.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use clap::Args;
use tollgate::{Policy, Quota};
use tollgate_rules::{Descriptor, RuleSet};

use super::{
    published::{Published, PublishedLimiter},
    server::{RedisOptions, Server},
    state_key::{Kind, StateKey},
};
use crate::{failure::Failure, rules::RuleOptions};

/// The options that name the limits. Without them, the limits are those that services publish.
#[derive(Args, Debug, Default)]
pub(crate) struct LimitOptions {
    /// Reads the limits from this file or directory of rules
    #[arg(long = "rules", value_name = "FILE")]
    file: Option<PathBuf>,

    /// Sets the quota of a policy, such as api=100/min; may be repeated
    #[arg(long = "policy", value_name = "NAME=QUOTA")]
    policies: Vec<String>,

    #[command(flatten)]
    rules: RuleOptions,
}

/// The quotas that are known.
#[derive(Default)]
pub(crate) struct Limits {
    set: Option<Arc<RuleSet>>,
    /// The quotas of the rules by the name and the layout of their policies. `None` when rules
    /// disagree.
    of_rules: HashMap<(String, Kind), Option<Quota>>,
    of_policies: HashMap<String, Quota>,
    /// Options name the limits.
    is_named: bool,
    /// The quotas that services publish, by the name and the layout of their policies.
    of_services: HashMap<(String, Kind), Quota>,
    published: Vec<PublishedLimiter>,
    warnings: Vec<String>,
}

impl LimitOptions {
    /// Returns whether no limit is named.
    pub(crate) fn is_empty(&self) -> bool {
        self.file.is_none() && self.policies.is_empty()
    }

    /// Reads the limits that are named.
    pub(crate) fn load(&self) -> Result<Limits, Failure> {
        let mut limits = Limits {
            is_named: !self.is_empty(),
            ..Limits::default()
        };
        for policy in &self.policies {
            let (name, quota) = policy
                .split_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| {
                    Failure::new(format_args!(
                        "--policy {policy:?} must have the form NAME=QUOTA"
                    ))
                })?;
            let quota = quota
                .parse()
                .map_err(|error| Failure::new(format_args!("--policy {name}: {error}")))?;
            limits.of_policies.insert(name.to_owned(), quota);
        }
        if let Some(file) = &self.file {
            limits.add(Arc::new(self.rules.load(file)?));
        }
        Ok(limits)
    }
}

impl Limits {
    /// Returns the limits of rules. What services publish is read beside them.
    pub(crate) fn of_rules(set: Arc<RuleSet>) -> Self {
        let mut limits = Self::default();
        limits.add(set);
        limits
    }

    fn add(&mut self, set: Arc<RuleSet>) {
        for policy in set
            .rules()
            .filter_map(|rule| rule.policies())
            .flat_map(|policies| policies.iter())
        {
            let kind = Kind::of(policy);
            let quota = self
                .of_rules
                .entry((policy.name().to_owned(), kind))
                .or_insert(Some(policy.quota()));
            if *quota != Some(policy.quota()) {
                *quota = None;
            }
        }
        self.set = Some(set);
    }

    /// Connects to the server, and [reads](Self::read_published) the limits that services publish.
    /// Prints what could not be read.
    pub(crate) async fn connect(&mut self, redis: &RedisOptions) -> Result<Server, Failure> {
        let mut server = redis.connect().await?;
        self.read_published(&mut server).await?;
        for warning in &self.warnings {
            eprintln!("warning: {warning}");
        }
        Ok(server)
    }

    /// Reads the limits that services publish, unless options name the limits.
    ///
    /// A user without the right to read them goes on without limits.
    pub(crate) async fn read_published(&mut self, server: &mut Server) -> Result<(), Failure> {
        if self.is_named {
            return Ok(());
        }
        let published = match Published::read(server).await {
            Ok(published) => published,
            Err(failure) if failure.message().ends_with("NOPERM") => Published {
                warnings: vec![format!(
                    "the published limits are not read: {}",
                    failure.message()
                )],
                ..Published::default()
            },
            Err(failure) => return Err(failure),
        };
        self.published = published.limiters();
        self.of_services.clear();
        let mut warnings = published.warnings.clone();
        for policy in published.policies() {
            let (name, quota) = (policy.name().to_owned(), policy.quota());
            let before = self
                .of_services
                .insert((name.clone(), Kind::of(&policy)), quota);
            if let Some(before) = before.filter(|before| *before != quota) {
                warnings.push(format!(
                    "policy {name} is published with {before} and {quota}, of which the newest is taken"
                ));
            }
        }
        self.warnings = warnings;
        Ok(())
    }

    /// Refuses to go on without limits. `needs` says what needs them.
    pub(crate) fn require(&self, needs: &str, prefix: &str) -> Result<(), Failure> {
        if self.is_named || !self.of_services.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format_args!(
            "{needs} needs the limits, and none are published under the prefix {prefix}: set the prefix of the services \
             with --prefix, name the limits with --rules or --policy, or build the limiters of the services with \
             .published()"
        )))
    }

    /// Returns what could not be read, for a view that has a place for it.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the limiters that services publish.
    pub(crate) fn published(&self) -> &[PublishedLimiter] {
        &self.published
    }

    /// Returns the rules.
    pub(super) fn rules(&self) -> Option<&RuleSet> {
        self.set.as_deref()
    }

    /// Returns the quota of a state, and `None` when it is not known.
    pub(super) fn quota(&self, key: &StateKey) -> Option<Quota> {
        if let Some(quota) = self.of_policies.get(&key.policy) {
            return Some(*quota);
        }
        let name = (key.policy.clone(), key.kind);
        if let Some(quota) = self.of_services.get(&name) {
            return Some(*quota);
        }
        match self.of_rules.get(&name)? {
            Some(quota) => Some(*quota),
            // Several rules have a policy of this name, so the rule is found by the subject.
            None => self.quota_of_subject(key),
        }
    }

    fn quota_of_subject(&self, key: &StateKey) -> Option<Quota> {
        let (domain, entries) = entries(&key.subject)?;
        let descriptor: Descriptor<'_> = entries.into_iter().collect();
        let found = self.set.as_ref()?.find(&domain, &descriptor)?;
        let is_same =
            |policy: &&Policy| policy.name() == key.policy && Kind::of(policy) == key.kind;
        found
            .rule()
            .policies()?
            .iter()
            .find(is_same)
            .map(Policy::quota)
    }
}

/// Reads the domain and the entries out of a key that rules make:
/// `shop,(tenant,acme),(route,/export)`.
///
/// Returns `None` for a key that holds a digest of a long text, and for keys of the mode `envoy`.
fn entries(subject: &str) -> Option<(String, Vec<(String, String)>)> {
    let mut parts = split(subject)?.into_iter();
    let domain = text(parts.next()?)?;
    let mut entries = Vec::new();
    for part in parts {
        // A pattern that shares one counter has a third part.
        match split(part.strip_prefix('(')?.strip_suffix(')')?)?[..] {
            [key, value] | [key, value, _] => entries.push((text(key)?, text(value)?)),
            _ => return None,
        }
    }
    (!entries.is_empty()).then_some((domain, entries))
}

/// Splits at the commas outside of parentheses.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    Some(parts)
}

/// Reads the text of one part. A network, as `*2001:db8::/64`, gives its first address.
fn text(part: &str) -> Option<String> {
    if let Some(network) = part.strip_prefix('*') {
        return network.split('/').next().map(str::to_owned);
    }
    if part.starts_with(['!', '~', '#']) {
        return None;
    }
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' if rest.is_empty() && part.len() == 1 => {}
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = after;
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).ok()
}
