//! Finds the rule of a descriptor.

mod counter;
mod explain;
mod metric;

use std::fmt;

use smallvec::SmallVec;

pub use explain::{Attempt, Explanation, LevelTrace, Outcome as AttemptOutcome};

use crate::{
    Descriptor, Entry, Rule, RuleSet,
    rule_set::{
        Node,
        level::{MatchedBy, Step},
    },
    selector::Selector,
};

/// Holds the rule of a descriptor, and the way to it.
pub struct Match<'a> {
    set: &'a RuleSet,
    domain: &'a str,
    entries: &'a [Entry<'a>],
    rule: Found<'a>,
    /// One step for each entry. Empty for an override.
    steps: SmallVec<[Step; 6]>,
}

/// A descriptor of the file that matches an entry.
#[derive(Clone, Copy)]
struct Selected<'a> {
    selector: &'a Selector,
    node: &'a Node,
    by: MatchedBy,
}

enum Found<'a> {
    Rule(&'a Rule),
    Override(Box<Rule>),
}

impl RuleSet {
    /// Finds the limit of a descriptor, and returns `None` when no limit applies.
    ///
    /// A descriptor with a [limit of its own](Descriptor::with_limit) has that limit when the domain exists. For any other,
    /// each entry selects one descriptor of the file, from the root of the domain inwards:
    ///
    /// 1. the one with the same key and value,
    /// 2. else the first one, in the order of the file, with the same key and a pattern that matches the value,
    /// 3. else the one with the same key and no value.
    ///
    /// The last one holds the limit. Without a limit there, the descriptor is not limited: that is how a value is excepted
    /// from a default. The limit of a descriptor never applies to a longer one. A choice is final: when the rest of the
    /// entries match nothing below it, its siblings are not tried.
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
    pub fn find<'a>(&'a self, domain: &'a str, descriptor: &'a Descriptor<'_>) -> Option<Match<'a>> {
        let root = &self.domains.get(domain)?.root;
        let entries = descriptor.entries();
        if let Some(limit) = descriptor.limit() {
            let rule = Found::Override(Box::new(Rule::of_override(limit, self.compat)));
            return Some(Match { set: self, domain, entries, rule, steps: SmallVec::new() });
        }
        let mut steps = SmallVec::new();
        let mut level = Some(root);
        let mut rule = None;
        for entry in entries {
            let step = level?.find(&self.selectors, entry.key(), entry.value())?;
            let node = self.node(step);
            (level, rule) = (node.children.as_deref(), node.rule.as_deref());
            steps.push(step);
        }
        Some(Match { set: self, domain, entries, rule: Found::Rule(rule?), steps })
    }

    fn node(&self, step: Step) -> &Node {
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

    /// Returns whether the descriptor replaced the limit of the rules.
    #[must_use]
    pub fn is_override(&self) -> bool {
        matches!(self.rule, Found::Override(_))
    }

    /// Returns the entries of the descriptor.
    #[must_use]
    pub fn entries(&self) -> &'a [Entry<'a>] {
        self.entries
    }

    /// Returns the domain.
    #[must_use]
    pub fn domain(&self) -> &'a str {
        self.domain
    }

    /// Returns how each entry was matched. It is empty for an override.
    #[must_use]
    pub fn matched_by(&self) -> impl ExactSizeIterator<Item = MatchedBy> {
        self.steps.iter().map(|step| step.by)
    }

    /// Returns each entry with the descriptor of the file that it matches, which an override has not.
    fn matched(&self) -> impl Iterator<Item = (&'a Entry<'a>, Option<Selected<'a>>)> {
        let steps = (0..).map(|at| self.steps.get(at));
        self.entries.iter().zip(steps.map(|step| step.map(|step| self.selected(*step))))
    }

    fn selected(&self, step: Step) -> Selected<'a> {
        let (selector, node) = (&self.set.selectors[step.node as usize], self.set.node(step));
        Selected { selector, node, by: step.by }
    }
}

impl fmt::Debug for Match<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Match")
            .field("domain", &self.domain)
            .field("entries", &self.entries)
            .field("rule", self.rule())
            .finish_non_exhaustive()
    }
}
