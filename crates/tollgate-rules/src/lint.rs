//! Finds rules that are allowed and probably mean something else.
//! What is not allowed is refused in `compile/`, as an error.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    path::Path,
    sync::Arc,
};

use crate::{
    Compat, RuleSet,
    document::short,
    error,
    rule::Origin,
    rule_set::{Domain, RuleNode, level::Level},
    selector::Selector,
};

/// Reports a rule that is allowed, but probably does not do what its author meant.
///
/// [`RuleSet::warnings`] finds such rules.
///
/// ```
/// use tollgate_rules::{Format, RuleSet, RuleWarningKind};
///
/// let rules = RuleSet::parse(
///     "domain: shop
/// descriptors:
/// - {key: tenant, value: '*', rate_limit: {unit: minute, requests_per_unit: 600}}
/// - {key: tenant, value: free-*, rate_limit: {unit: minute, requests_per_unit: 60}}
/// ",
///     Format::Yaml,
/// )?;
/// let warnings = rules.warnings();
/// assert_eq!(warnings[0].kind(), RuleWarningKind::NeverSelected);
/// assert_eq!(
///     warnings[0].to_string(),
///     "line 4: tenant=free-* is never selected, because tenant=* (line 3) matches all its values",
/// );
/// # Ok::<(), tollgate_rules::RuleErrors>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleWarning {
    file: Option<Arc<Path>>,
    line: u32,
    kind: RuleWarningKind,
    message: String,
}

/// Groups warnings about rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RuleWarningKind {
    /// A rule or a class is never selected, because one before it matches all its values.
    NeverSelected,
    /// A rule has no limit and no descriptors, and is not an exception from another rule.
    NoEffect,
    /// Each value that matches a pattern has a counter of its own, and the file does not say whether
    /// that is meant: see `share_threshold`.
    CountedApart,
    /// No limit of the domain has a name in `replaces`, or no action in `rate_limits` makes an
    /// entry with the `key` of a class.
    UnknownName,
    /// The meaning of a rule depends on a quirk of the mode `envoy`: see [`Compat`].
    Quirk,
}

impl RuleWarningKind {
    /// Returns a stable word for scripts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeverSelected => "never_selected",
            Self::NoEffect => "no_effect",
            Self::CountedApart => "counted_apart",
            Self::UnknownName => "unknown_name",
            Self::Quirk => "quirk",
        }
    }
}

impl RuleWarning {
    /// Returns the group of the warning.
    #[must_use]
    pub fn kind(&self) -> RuleWarningKind {
        self.kind
    }

    /// Returns the file of the rule, and `None` for a rule that was not read from a file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the line of the rule, from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Returns the warning without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for RuleWarning {
    /// Writes `FILE:LINE: MESSAGE`, or `line LINE: MESSAGE` without a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}:{}: {}", error::shown(file), self.line, self.message),
            None => write!(f, "line {}: {}", self.line, self.message),
        }
    }
}

impl RuleSet {
    /// Finds rules that are allowed and probably mean something else, in the order of the files and
    /// their lines.
    ///
    /// Use it in tools that check files.
    #[must_use]
    pub fn warnings(&self) -> Vec<RuleWarning> {
        let mut lint = Lint {
            set: self,
            names: HashSet::new(),
            found: Vec::new(),
        };
        for (name, domain) in &self.domains {
            lint.names.clear();
            lint.collect_names(&domain.root);
            lint.level(name, &domain.root, false);
            lint.classes(domain);
        }
        lint.found.sort();
        lint.found
    }
}

struct Lint<'a> {
    set: &'a RuleSet,
    /// The names of all limits of the domain.
    names: HashSet<&'a str>,
    found: Vec<RuleWarning>,
}

impl<'a> Lint<'a> {
    fn collect_names(&mut self, level: &'a Level) {
        for id in level.ids() {
            let node = &self.set.nodes[id as usize];
            self.names
                .extend(node.rule.as_ref().and_then(|rule| rule.name()));
            if let Some(children) = &node.children {
                self.collect_names(children);
            }
        }
    }

    /// Looks at the rules of a level. `is_metered` is true when an outer level has
    /// `value_to_metric`.
    fn level(&mut self, domain: &str, level: &Level, is_metered: bool) {
        let ids = level.ids();
        let keys: BTreeSet<&str> = ids.iter().map(|id| &*self.selector(*id).key).collect();
        for id in ids {
            let (node, selector) = (&self.set.nodes[id as usize], self.selector(id));
            let is_metered = is_metered || node.value_to_metric;
            self.never_selected(level, id);
            self.no_effect(level, id);
            self.counted_apart(level, id);
            self.unknown_names(domain, node);
            if self.set.compat == Compat::Envoy {
                self.ambiguous(&keys, node, selector);
                self.lost_metadata(node, is_metered);
            }
            if let Some(children) = &node.children {
                self.level(domain, children, is_metered);
            }
        }
    }

    fn selector(&self, id: u32) -> &'a Selector {
        &self.set.selectors[id as usize]
    }

    fn push(&mut self, origin: &Origin, kind: RuleWarningKind, message: &str) {
        let (file, message) = (origin.file.clone(), error::printable(message).into_owned());
        self.found.push(RuleWarning {
            file,
            line: origin.line,
            kind,
            message,
        });
    }

    /// A pattern or a default behind a pattern that matches every text that it matches.
    fn never_selected(&mut self, level: &Level, id: u32) {
        let selector = self.selector(id);
        let Some(first) = level.covering(selector, id) else {
            return;
        };
        let first_node = &self.set.nodes[first as usize];
        let message = format!(
            "{} is never selected, because {} ({}) matches all its values",
            shown(selector),
            shown(self.selector(first)),
            first_node.origin
        );
        self.push(
            &self.set.nodes[id as usize].origin,
            RuleWarningKind::NeverSelected,
            &message,
        );
    }

    fn no_effect(&mut self, level: &Level, id: u32) {
        let (node, selector) = (&self.set.nodes[id as usize], self.selector(id));
        if node.rule.is_some() || node.children.is_some() {
            return;
        }
        // An exception from a default, or from a pattern.
        let is_exception =
            selector.value.is_some() && level.has_other(&self.set.selectors, selector, id);
        if !is_exception {
            let message = format!(
                "{} has no rate_limit and no descriptors, and is no exception from another rule, so it changes nothing",
                shown(selector)
            );
            self.push(&node.origin, RuleWarningKind::NoEffect, &message);
        }
    }

    /// A pattern under which whoever can choose the value can choose a fresh counter.
    ///
    /// A star alone says as much as a default: each value. So does a network of addresses.
    fn counted_apart(&mut self, level: &Level, id: u32) {
        let (node, selector) = (&self.set.nodes[id as usize], self.selector(id));
        let text = match self.set.compat {
            Compat::Native => selector.value().to_owned(),
            Compat::Envoy => selector.composite(),
        };
        let is_stated = node.shares_counter.is_some() || node.prefix_v6.is_some();
        if !text.contains('*')
            || selector.value() == "*"
            || is_stated
            || level.covering(selector, id).is_some()
            || !self.counts(node)
        {
            return;
        }
        let message = format!(
            "each value of {} has a counter of its own, so a client that chooses the value has no limit: set \
             share_threshold to true, or to false where the values are yours",
            shown(selector)
        );
        self.push(&node.origin, RuleWarningKind::CountedApart, &message);
    }

    /// Returns whether requests are counted under a descriptor, or under one below it.
    fn counts(&self, node: &RuleNode) -> bool {
        let is_counted = |rule: &Arc<crate::Rule>| rule.policies().is_some();
        node.rule.as_ref().is_some_and(is_counted)
            || node.children.as_ref().is_some_and(|level| {
                let ids = level.ids();
                ids.iter()
                    .any(|id| self.counts(&self.set.nodes[*id as usize]))
            })
    }

    fn unknown_names(&mut self, domain: &str, node: &RuleNode) {
        let Some(rule) = &node.rule else { return };
        let unknown: Vec<_> = rule
            .replaces()
            .filter(|name| !self.names.contains(name))
            .map(str::to_owned)
            .collect();
        for name in unknown {
            let (name, domain) = (short(&name), short(domain));
            let message =
                format!("replaces {name:?}, but no limit of the domain {domain} has that name");
            self.push(&node.origin, RuleWarningKind::UnknownName, &message);
        }
    }

    /// Classes that no request is the first of, and classes whose entry no action makes.
    fn classes(&mut self, domain: &Domain) {
        for (at, class) in domain.priorities.iter().enumerate() {
            let name = short(class.name());
            if let Some(first) = domain.priorities[..at]
                .iter()
                .find(|first| first.covers(class))
            {
                let message = format!(
                    "class {name:?} is never selected, because class {:?} ({}) has all its requests",
                    short(first.name()),
                    first.origin
                );
                self.push(&class.origin, RuleWarningKind::NeverSelected, &message);
            }
            #[cfg(feature = "http")]
            if let (Some(selector), Some(made)) = (&class.selector, &domain.descriptors)
                && !made.keys().any(|key| *key == *selector.key)
            {
                let key = short(&selector.key);
                let message = format!(
                    "class {name:?} has the key {key:?}, which no action of rate_limits makes"
                );
                self.push(&class.origin, RuleWarningKind::UnknownName, &message);
            }
        }
    }

    /// Another key of the level can be followed by a value that makes the same text.
    fn ambiguous(&mut self, keys: &BTreeSet<&str>, node: &RuleNode, selector: &Selector) {
        let text = selector.composite();
        let other = text.match_indices('_').find_map(|(at, _)| {
            let key = keys
                .get(&text[..at])
                .filter(|key| ***key != *selector.key)?;
            Some((*key, &text[at + 1..]))
        });
        if let Some((key, value)) = other {
            let message = format!(
                "an entry {}={} also selects {}, because the mode envoy compares the text key_value",
                short(key),
                short(value),
                shown(selector)
            );
            self.push(&node.origin, RuleWarningKind::Quirk, &message);
        }
    }

    fn lost_metadata(&mut self, node: &RuleNode, is_metered: bool) {
        let Some(rule) = &node.rule else { return };
        if rule.metadata().is_some() && (is_metered || rule.has_detailed_metric) {
            let message = "the metadata is lost in the mode envoy, because of detailed_metric or value_to_metric";
            self.push(&node.origin, RuleWarningKind::Quirk, message);
        }
    }
}

fn shown(selector: &Selector) -> String {
    match &selector.value {
        Some(value) => format!("{}={}", short(&selector.key), short(value)),
        None => format!("{} without a value", short(&selector.key)),
    }
}
