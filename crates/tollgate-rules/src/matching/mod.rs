//! Finds the rule of a descriptor.
//! The search by key and value in one level is in `rule_set/level.rs`. Here it goes from level to
//! level, and the key and the name of the counter are made.

mod explain;

use std::{borrow::Cow, net::IpAddr};

use smallvec::SmallVec;
use tollgate::Key;

use crate::{
    Descriptor, DescriptorEntry, Rule, RuleMetadata, RuleSet,
    names::{metric_part, stat_name},
    rule_set::{
        Domain, RuleNode,
        level::{LevelStep, MatchedBy},
    },
    selector::Selector,
};
pub use explain::{Attempt, AttemptOutcome, Explanation, LevelTrace};

/// The rule that applies to a descriptor, and how each entry was matched. [`RuleSet::find`] returns
/// it.
pub struct Match<'a> {
    set: &'a RuleSet,
    domain: &'a str,
    entries: &'a [DescriptorEntry<'a>],
    rule: Found<'a>,
    /// One step for each entry. Empty for an override.
    steps: SmallVec<[LevelStep; 6]>,
}

/// A descriptor of the file that matches an entry.
#[derive(Clone, Copy)]
struct Selected<'a> {
    selector: &'a Selector,
    node: &'a RuleNode,
    by: MatchedBy,
}

enum Found<'a> {
    Rule(&'a Rule),
    Override(Box<Rule>),
}

impl RuleSet {
    /// Finds the limit of a descriptor, and returns `None` when no limit applies.
    ///
    /// A descriptor with a [limit of its own](Descriptor::with_limit) has that limit when the
    /// domain exists. For any other, each entry selects one descriptor of the file, from the root
    /// of the domain inwards:
    ///
    /// 1. the one with the same key and value,
    /// 2. else the first one, in the order of the file, with the same key and a pattern that
    ///    matches the value,
    /// 3. else the one with the same key and no value.
    ///
    /// The one that the last entry selects holds the limit. If it has none, there is no limit: so a
    /// value is made an exception from a default. The limit of a descriptor never applies to a
    /// longer one. A choice is final: when the other entries match nothing below it, its siblings
    /// are not tried.
    ///
    /// The work is a few hashes for each entry. Nothing is allocated for up to six entries.
    ///
    /// ```
    /// use tollgate_rules::{Descriptor, Format, RuleSet};
    ///
    /// let rules = RuleSet::parse(
    ///     "
    ///     domain: shop
    ///     descriptors:
    ///       - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 600}}
    ///       - {key: tenant, value: internal}
    ///       - {key: tenant, value: free-*, rate_limit: {unit: minute, requests_per_unit: 60}}
    ///     ",
    ///     Format::Yaml,
    /// )?;
    /// let amount = |tenant| {
    ///     let descriptor = Descriptor::from([("tenant", tenant)]);
    ///     rules.find("shop", &descriptor).map(|found| found.rule().amount().unwrap().0)
    /// };
    /// assert_eq!(amount("acme"), Some(600));
    /// assert_eq!(amount("free-7"), Some(60));
    /// assert_eq!(amount("internal"), None);
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn find<'a>(
        &'a self,
        domain: &'a str,
        descriptor: &'a Descriptor<'_>,
    ) -> Option<Match<'a>> {
        self.find_in(domain, self.domains.get(domain)?, descriptor)
    }

    /// Finds the limit of a descriptor in the rules of its domain, as [`find`](Self::find) does.
    pub(crate) fn find_in<'a>(
        &'a self,
        domain: &'a str,
        rules: &'a Domain,
        descriptor: &'a Descriptor<'_>,
    ) -> Option<Match<'a>> {
        let entries = descriptor.entries();
        if let Some(limit) = descriptor.limit() {
            let rule = Found::Override(Box::new(Rule::of_override(limit, self.compat)));
            return Some(Match {
                set: self,
                domain,
                entries,
                rule,
                steps: SmallVec::new(),
            });
        }
        let mut steps = SmallVec::new();
        let mut level = Some(&rules.root);
        let mut rule = None;
        for entry in entries {
            let step = level?.find(&self.selectors, entry.key(), entry.value())?;
            let node = self.node(step);
            (level, rule) = (node.children.as_deref(), node.rule.as_deref());
            steps.push(step);
        }
        Some(Match {
            set: self,
            domain,
            entries,
            rule: Found::Rule(rule?),
            steps,
        })
    }

    fn node(&self, step: LevelStep) -> &RuleNode {
        &self.nodes[step.node as usize]
    }
}

impl<'a> Match<'a> {
    /// Returns the rule.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        match &self.rule {
            Found::Rule(rule) => rule,
            Found::Override(rule) => rule,
        }
    }

    /// Returns whether the descriptor brought its own limit, which replaces the limit of the rules.
    #[must_use]
    pub fn is_override(&self) -> bool {
        matches!(self.rule, Found::Override(_))
    }

    /// Returns the entries of the descriptor.
    #[must_use]
    pub fn entries(&self) -> &'a [DescriptorEntry<'a>] {
        self.entries
    }

    /// Returns the domain.
    #[must_use]
    pub fn domain(&self) -> &'a str {
        self.domain
    }

    /// Returns how each entry was matched. Nothing when the descriptor brought its own limit.
    #[must_use]
    pub fn matched_by(&self) -> impl ExactSizeIterator<Item = MatchedBy> {
        self.steps.iter().map(|step| step.by)
    }

    /// Returns each entry with the descriptor of the file that it matches, which an override has
    /// not.
    fn matched(&self) -> impl Iterator<Item = (&'a DescriptorEntry<'a>, Option<Selected<'a>>)> {
        let steps = (0..).map(|at| self.steps.get(at));
        self.entries
            .iter()
            .zip(steps.map(|step| step.map(|step| self.selected(*step))))
    }

    fn selected(&self, step: LevelStep) -> Selected<'a> {
        let (selector, node) = (&self.set.selectors[step.node as usize], self.set.node(step));
        Selected {
            selector,
            node,
            by: step.by,
        }
    }
}

tollgate::debug_fields! { Match<'a>: domain, entries, rule = .rule(), .. }

impl Match<'_> {
    /// Returns the key of the counter.
    ///
    /// In native [mode](crate::Compat), two keys are equal only for the same domain and the same
    /// entries, with two exceptions. With `share_threshold`, all values of a pattern have one key.
    /// With `prefix_v6`, all IPv6 addresses of one network have one key.
    ///
    /// In the mode `envoy`, the key is the text `domain_key_value_…`, so some different descriptors
    /// have the same key.
    ///
    /// ```
    /// use tollgate_rules::{Descriptor, Format, RuleSet};
    ///
    /// let rules = RuleSet::parse(
    ///     "
    ///     domain: shop
    ///     descriptors:
    ///       - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
    ///       - {key: a_b, rate_limit: {unit: day, requests_per_unit: 1}}
    ///     ",
    ///     Format::Yaml,
    /// )?;
    /// let (one, two) = (Descriptor::from([("a", "b_c")]), Descriptor::from([("a_b", "c")]));
    /// assert_ne!(rules.find("shop", &one).unwrap().key(), rules.find("shop", &two).unwrap().key());
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> Key {
        if self.set.compat.is_envoy() {
            return Key::new(self.envoy_prefix().as_str());
        }
        let domain = Key::new(self.domain);
        self.matched()
            .fold(domain, |key, (entry, step)| key.join(part(entry, step)))
    }

    /// Returns the key that Envoy's service has in Redis, without its configured prefix.
    ///
    /// Use it to compare counters with such a service. `now` is the time in seconds since the Unix
    /// epoch. The key ends with the start of the current window. A rule that counts nothing has the
    /// key of a window of one second.
    #[must_use]
    pub fn envoy_key(&self, now: u64) -> String {
        let seconds = self
            .rule()
            .amount()
            .map_or(1, |(_, period)| period.as_secs().max(1));
        format!("{}{}", self.envoy_prefix(), now - now % seconds)
    }

    fn envoy_prefix(&self) -> String {
        let mut text = format!("{}_", self.domain);
        for (entry, step) in self.matched() {
            text.push_str(entry.key());
            text.push('_');
            text.push_str(&shared_pattern(entry, step).unwrap_or_else(|| entry.value().into()));
            text.push('_');
        }
        text
    }
}

/// Returns the part of one entry.
fn part(entry: &DescriptorEntry<'_>, step: Option<Selected<'_>>) -> Key {
    let key = Key::new(entry.key());
    if let Some(pattern) = shared_pattern(entry, step) {
        // A third part keeps the pattern apart from a value of the same text.
        return key.join(&*pattern).join("shared");
    }
    let prefix = step.and_then(|step| step.node.prefix_v6);
    match prefix.and_then(|bits| Some((bits, entry.value().parse::<IpAddr>().ok()?))) {
        Some((bits, address)) => key.join(Key::network(address, bits)),
        None => key.join(entry.value()),
    }
}

/// Returns the pattern that takes the place of the value, when all values of the pattern share a
/// counter.
fn shared_pattern<'a>(
    entry: &DescriptorEntry<'_>,
    step: Option<Selected<'a>>,
) -> Option<Cow<'a, str>> {
    let step = step
        .filter(|step| step.by == MatchedBy::Pattern && step.node.shares_counter == Some(true))?;
    Some(pattern_text(entry, step.selector))
}

/// Returns the text of a pattern without the key of the entry.
fn pattern_text<'a>(entry: &DescriptorEntry<'_>, selector: &'a Selector) -> Cow<'a, str> {
    if let Some(value) = selector
        .value
        .as_deref()
        .filter(|_| *selector.key == *entry.key())
    {
        return value.into();
    }
    // A pattern in the key, in the mode `envoy`. It starts with the key of the entry only by
    // chance.
    let text = selector.composite();
    let rest = text
        .strip_prefix(entry.key())
        .and_then(|rest| rest.strip_prefix('_'));
    rest.unwrap_or(&text).to_owned().into()
}

impl Match<'_> {
    /// Returns the name in metrics: the domain, and for each entry the key and the value of the
    /// rule.
    ///
    /// The value is the text in the file, which may be a pattern. A rule without a value adds only
    /// the key. With `value_to_metric`, the value of the request takes its place at that level, and
    /// with `detailed_metric` at every level. A pattern with `share_threshold` keeps its own text.
    /// `:`, `|` and the dots of IPv4 addresses become `_`.
    ///
    /// **Where names contain values of requests, clients choose how many series there are.** The
    /// names of limits that requests bring along always do.
    /// [`Rule::metric_name`](crate::Rule::metric_name) never does.
    ///
    /// ```
    /// use tollgate_rules::{Descriptor, Format, RuleSet};
    ///
    /// let rules = RuleSet::parse(
    ///     "
    ///     domain: shop
    ///     descriptors:
    ///       - key: tenant
    ///         descriptors:
    ///           - key: route
    ///             value_to_metric: true
    ///             rate_limit: {unit: second, requests_per_unit: 5}
    ///     ",
    ///     Format::Yaml,
    /// )?;
    /// let descriptor = Descriptor::from([("tenant", "acme"), ("route", "/pay")]);
    /// let found = rules.find("shop", &descriptor).unwrap();
    /// assert_eq!(found.metric_name(), "shop.tenant.route_/pay");
    /// assert_eq!(found.rule().metric_name(), "shop.tenant.route");
    /// # Ok::<(), tollgate_rules::RuleErrors>(())
    /// ```
    #[must_use]
    pub fn metric_name(&self) -> Cow<'_, str> {
        let is_detailed = self.is_override() || self.rule().has_detailed_metric;
        let has_value =
            |step: Selected<'_>| step.node.value_to_metric && step.by != MatchedBy::Value;
        if !is_detailed && !self.matched().any(|(_, step)| step.is_some_and(has_value)) {
            return self.rule().metric_name().into();
        }
        let is_shared = self
            .matched()
            .any(|(entry, step)| shared_pattern(entry, step).is_some());
        let mut name = self.domain.to_owned();
        for (entry, step) in self.matched() {
            let is_plain = |step: &Selected<'_>| !is_detailed && !step.node.value_to_metric;
            let value: Cow<'_, str> = match (shared_pattern(entry, step), step.filter(is_plain)) {
                (Some(pattern), _) => pattern,
                (
                    None,
                    Some(Selected {
                        selector,
                        by: MatchedBy::Pattern,
                        ..
                    }),
                ) => pattern_text(entry, selector),
                (
                    None,
                    Some(Selected {
                        by: MatchedBy::Default,
                        ..
                    }),
                ) => "".into(),
                _ => entry.value().into(),
            };
            name.push('.');
            name.push_str(&metric_part(entry.key(), &value));
            // Envoy's service writes the separator of an empty value, in this one case.
            let keeps_separator =
                self.set.compat.is_envoy() && !self.is_override() && is_detailed && !is_shared;
            if value.is_empty() && keeps_separator {
                name.push('_');
            }
        }
        stat_name(&name).into()
    }

    /// Returns whether a request over the limit passes, and is only counted.
    ///
    /// This is so in shadow mode. It is also so when the rule is enforced for a share of the keys,
    /// and this [key](Self::key) does not belong to the share.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        let rule = self.rule();
        match rule.enforced_percent() {
            0 => true,
            100 => false,
            _ => !rule.enforcement.applies_to(&self.key()),
        }
    }

    /// Returns the metadata of the rule.
    ///
    /// In the mode `envoy` there is none where the name of the metric contains values of requests,
    /// as in Envoy's service.
    #[must_use]
    pub fn metadata(&self) -> Option<&RuleMetadata> {
        let metadata = self.rule().metadata()?;
        if !self.set.compat.is_envoy() {
            return Some(metadata);
        }
        let is_lost = if self.rule().has_detailed_metric {
            self.steps
                .last()
                .is_none_or(|step| self.set.node(*step).children.is_none())
        } else {
            self.metric_name() != self.rule().metric_name()
        };
        (!is_lost).then_some(metadata)
    }
}
