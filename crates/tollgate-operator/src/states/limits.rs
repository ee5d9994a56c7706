//! Finds the quota of a state: in rules, or by the name of its policy, as an operator names it or
//! services publish it.
//! What services publish is read in `published.rs`.

use std::{collections::HashMap, sync::Arc};

use tollgate::{
    Policy, PolicySet, Quota,
    store::{Exception, Publication},
};
use tollgate_rules::{Descriptor, RuleSet};

use super::{
    exceptions::{Exceptions, changed},
    published::{Published, PublishedLimiter},
    server::Server,
    state_key::{Kind, StateKey},
};
use crate::error::{OperatorError, OperatorErrorKind};

/// The quotas that are known: those that services publish, of rules, and of single policies.
///
/// ```
/// use tollgate::Quota;
/// use tollgate_operator::states::Limits;
///
/// let limits = Limits::default();
/// assert!(!limits.are_known(), "nothing was read yet");
/// let limits = limits.with_policy("api", Quota::per_minute(100)).named_alone();
/// assert!(limits.are_known());
/// ```
#[derive(Default)]
pub struct Limits {
    set: Option<Arc<RuleSet>>,
    /// The quotas of the rules by the name and the layout of their policies. `None` when rules
    /// disagree.
    of_rules: HashMap<(String, Kind), Option<Quota>>,
    of_policies: HashMap<String, Quota>,
    /// Limits are named by the caller, and those that services publish are not read.
    is_named: bool,
    /// The quotas that services publish, by the name and the layout of their policies.
    of_services: HashMap<(String, Kind), Quota>,
    published: Vec<PublishedLimiter>,
    publications: Vec<Publication>,
    exceptions: Exceptions,
    warnings: Vec<String>,
}

impl Limits {
    /// Returns the limits of rules. What services publish is read beside them.
    #[must_use]
    pub fn of_rules(set: Arc<RuleSet>) -> Self {
        Self::default().with_rules(set)
    }

    /// Adds the limits of rules.
    #[must_use]
    pub fn with_rules(mut self, set: Arc<RuleSet>) -> Self {
        self.add(set);
        self
    }

    /// Adds the quota of all policies of this name.
    #[must_use]
    pub fn with_policy(mut self, name: impl Into<String>, quota: Quota) -> Self {
        self.of_policies.insert(name.into(), quota);
        self
    }

    /// Leaves out what services publish.
    #[must_use]
    pub fn named_alone(mut self) -> Self {
        self.is_named = true;
        self
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

    /// Reads the limits that services publish, unless they are [left out](Self::named_alone), and the
    /// exceptions from all of them.
    ///
    /// A user without the right to read them goes on without, and with a [warning](Self::warnings).
    ///
    /// # Errors
    ///
    /// When the server does not answer, or refuses.
    pub async fn read(&mut self, server: &mut Server) -> Result<(), OperatorError> {
        self.warnings.clear();
        if !self.is_named {
            self.read_published(server).await?;
        }
        let exceptions = Exceptions::read(server).await;
        self.exceptions = self.or_warning("the exceptions", exceptions)?;
        Ok(())
    }

    /// Returns what was read, or nothing and a warning when the user has no right to it.
    fn or_warning<T: Default>(
        &mut self,
        what: &str,
        read: Result<T, OperatorError>,
    ) -> Result<T, OperatorError> {
        match read {
            Err(error) if error.kind() == OperatorErrorKind::Forbidden => {
                let warning = format!("{what} are not read: {error}");
                self.warnings.push(warning);
                Ok(T::default())
            }
            read => read,
        }
    }

    async fn read_published(&mut self, server: &mut Server) -> Result<(), OperatorError> {
        let published = Published::read(server).await;
        let published = self.or_warning("the published limits", published)?;
        self.published = published.limiters();
        self.of_services.clear();
        self.warnings.extend(published.warnings.iter().cloned());
        for policy in published.policies() {
            let (name, quota) = (policy.name().to_owned(), policy.quota());
            let before = self
                .of_services
                .insert((name.clone(), Kind::of(&policy)), quota);
            if let Some(before) = before.filter(|before| *before != quota) {
                self.warnings.push(format!(
                    "policy {name} is published with {before} and {quota}, of which the newest is taken"
                ));
            }
        }
        self.publications = published.limits;
        Ok(())
    }

    /// Returns whether limits are named, or services publish some.
    #[must_use]
    pub fn are_known(&self) -> bool {
        self.is_named || !self.of_services.is_empty()
    }

    /// Returns what could not be read.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the limiters that services publish.
    #[must_use]
    pub fn published(&self) -> &[PublishedLimiter] {
        &self.published
    }

    /// Returns the rules.
    #[must_use]
    pub fn rules(&self) -> Option<&RuleSet> {
        self.set.as_deref()
    }

    /// Returns the exceptions that apply to a key, with the quotas that they put into force. `None` for a
    /// quota when the policy is not known.
    pub fn exceptions<'k>(
        &'k self,
        key: &'k str,
    ) -> impl Iterator<Item = (&'k Exception, Option<Quota>)> {
        self.exceptions.of_key(key).filter_map(move |exception| {
            let policy = self.policy_of(exception);
            // An outer level has exceptions from the policies that meter it, and from no others.
            let levels = policy.as_ref().and_then(Policy::level).map(usize::from);
            let metered = match levels {
                Some(levels) => outer(key, levels),
                None => key,
            };
            let applies = exception.key() == metered;
            applies.then(|| (exception, self.quota_with(exception)))
        })
    }

    /// Returns the time by the clock of the server when the exceptions were read.
    #[must_use]
    pub fn excepted_us(&self) -> u64 {
        self.exceptions.now_us
    }

    /// Returns the quota that an exception puts into force. `None` for a fresh start, and when its policy
    /// is not known.
    pub(crate) fn quota_with(&self, exception: &Exception) -> Option<Quota> {
        if exception.is_fresh_start() {
            return None;
        }
        if let Some(policy) = self.policy_of(exception) {
            let changed = exception.change().of(&policy);
            return changed.ok().map(|policy| policy.quota());
        }
        let mut kinds = self.of_rules.keys();
        let (_, kind) = kinds.find(|(name, _)| name == exception.policy())?;
        let key = StateKey {
            subject: exception.key().to_owned(),
            policy: exception.policy().to_owned(),
            kind: *kind,
        };
        changed(exception, &key, self.plain_quota(&key))
    }

    /// Returns the published policy of an exception, the newest.
    fn policy_of(&self, exception: &Exception) -> Option<Policy> {
        let mut published = self.publications.iter().rev();
        let limiter = published.find(|limiter| limiter.name() == exception.limiter())?;
        let (policies, name) = (limiter.policies(), exception.policy());
        let named = policies.iter().find(|policy| policy.name() == name);
        named.cloned()
    }

    /// Returns the quota in force of a state, and `None` when it is not known.
    pub(super) fn quota(&self, key: &StateKey) -> Option<Quota> {
        self.exceptions.quota(key, self.plain_quota(key))
    }

    /// Returns the quota of a state without an exception.
    fn plain_quota(&self, key: &StateKey) -> Option<Quota> {
        let name = (key.policy.clone(), key.kind);
        let by_name = self.of_policies.get(&key.policy);
        if let Some(quota) = by_name.or_else(|| self.of_services.get(&name)) {
            return Some(*quota);
        }
        match self.of_rules.get(&name)? {
            Some(quota) => Some(*quota),
            // Several rules have a policy of this name, so the rule is found by the subject.
            None => self.quota_of_subject(key),
        }
    }

    fn quota_of_subject(&self, key: &StateKey) -> Option<Quota> {
        let policies = self.policies_of_subject(&key.subject)?;
        let is_same =
            |policy: &&Policy| policy.name() == key.policy && Kind::of(policy) == key.kind;
        policies.iter().find(is_same).map(Policy::quota)
    }

    /// Returns the policies of the rule that limits a key which rules make.
    pub(crate) fn policies_of_subject(&self, subject: &str) -> Option<PolicySet> {
        let (domain, entries) = entries(subject)?;
        let descriptor: Descriptor<'_> = entries.into_iter().collect();
        let found = self.set.as_ref()?.find(&domain, &descriptor)?;
        found.rule().policies().cloned()
    }

    /// Returns what services publish, the newest last.
    pub(crate) fn publications(&self) -> &[Publication] {
        &self.publications
    }
}

/// Returns the outer levels of a key.
fn outer(key: &str, levels: usize) -> &str {
    let mut ends = key.match_indices('>').map(|(at, _)| at);
    let end = levels.checked_sub(1).and_then(|last| ends.nth(last));
    &key[..end.unwrap_or(key.len())]
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

tollgate::debug_fields! { Limits: published, warnings, .. }
