//! Explains step by step how a rule was found, for operators.
//! It repeats the search of `mod.rs` and keeps what was tried. Requests are decided without it.

use std::fmt;

use crate::{
    Descriptor, Rule, RuleSet,
    error::printable,
    rule::Limit,
    rule_set::{
        RuleNode,
        level::{Level, MatchedBy},
    },
};

/// Explains why a descriptor has its limit: what was tried at each level, and why other rules do
/// not apply.
///
/// [`RuleSet::explain`] makes an explanation, and `Display` writes it for people. **The text
/// contains the values of the request**, which may identify a client.
///
/// ```
/// use tollgate_rules::{Descriptor, Format, RuleSet};
///
/// let rules = RuleSet::parse(
///     "domain: shop
/// descriptors:
/// - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 600}}
/// - {key: tenant, value: free-*, rate_limit: {unit: minute, requests_per_unit: 60}}
/// ",
///     Format::Yaml,
/// )?;
/// let explanation = rules.explain("shop", &Descriptor::from([("tenant", "acme")]));
/// assert_eq!(
///     explanation.to_string(),
///     "tenant=acme\n\
///      \x20 value acme: no rule\n\
///      \x20 pattern free-* (line 4): does not match\n\
///      \x20 key without a value (line 3): selected\n\
///      limit 600/min of shop.tenant (line 3)\n",
/// );
/// # Ok::<(), tollgate_rules::RuleErrors>(())
/// ```
#[derive(Clone, Debug)]
pub struct Explanation {
    levels: Vec<LevelTrace>,
    outcome: String,
}

/// Lists the candidates for one entry of the descriptor.
#[derive(Clone, Debug)]
pub struct LevelTrace {
    key: String,
    value: String,
    attempts: Vec<Attempt>,
}

/// Describes one candidate, and whether it was selected.
#[derive(Clone, Debug)]
pub struct Attempt {
    by: MatchedBy,
    pattern: Option<String>,
    place: Option<String>,
    outcome: AttemptOutcome,
}

/// The reason why a candidate was selected or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// No rule of the level has this key and value.
    NoRule,
    /// The pattern does not match the value.
    NoMatch,
    /// The rule was selected.
    Selected,
    /// The rule matches, but one before it was selected.
    NotTried,
}

impl Explanation {
    /// Returns what was tried for each entry, from the root inwards.
    #[must_use]
    pub fn levels(&self) -> &[LevelTrace] {
        &self.levels
    }

    /// Returns the result as a sentence.
    #[must_use]
    pub fn outcome(&self) -> &str {
        &self.outcome
    }
}

impl LevelTrace {
    /// Returns the key of the entry.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value of the entry.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the candidates, in the order in which they are tried.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }
}

impl Attempt {
    /// Returns how the candidate is compared with the entry.
    #[must_use]
    pub fn by(&self) -> MatchedBy {
        self.by
    }

    /// Returns the text of the pattern. `None` when the candidate is not compared by a pattern.
    #[must_use]
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }

    /// Returns the file and the line of the candidate. `None` when there is no such rule.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// Returns whether the candidate was selected, or why not.
    #[must_use]
    pub fn outcome(&self) -> AttemptOutcome {
        self.outcome
    }
}

impl RuleSet {
    /// Explains how [`find`](Self::find) finds the limit of a descriptor.
    #[must_use]
    pub fn explain(&self, domain: &str, descriptor: &Descriptor<'_>) -> Explanation {
        let mut levels = Vec::new();
        let outcome = self.trace(domain, descriptor, &mut levels);
        Explanation { levels, outcome }
    }

    fn trace(
        &self,
        domain: &str,
        descriptor: &Descriptor<'_>,
        levels: &mut Vec<LevelTrace>,
    ) -> String {
        let Some(found) = self.domains.get(domain) else {
            return format!("no limit: there is no domain {domain:?}");
        };
        if let Some(limit) = descriptor.limit() {
            return format!(
                "limit {} per {} of the request, the rules are not consulted",
                limit.requests(),
                limit.unit()
            );
        }
        let mut level = Some(&found.root);
        let mut rule = None;
        for (at, entry) in descriptor.entries().iter().enumerate() {
            let Some(here) = level else {
                return format!(
                    "no limit: the rule for the first {at} entries has no rules below it"
                );
            };
            let (attempts, selected) = self.attempts(here, entry.key(), entry.value());
            levels.push(LevelTrace {
                key: entry.key().to_owned(),
                value: entry.value().to_owned(),
                attempts,
            });
            let Some(node) = selected else {
                return format!(
                    "no limit: no rule for {}={} at level {}",
                    entry.key(),
                    entry.value(),
                    at + 1
                );
            };
            (level, rule) = (node.children.as_deref(), Some(node));
        }
        match rule {
            None => "no limit: the descriptor has no entries".to_owned(),
            Some(RuleNode {
                rule: Some(rule), ..
            }) => described(rule),
            Some(RuleNode { origin, .. }) => {
                format!("no limit: the rule at {origin} has no rate_limit")
            }
        }
    }

    fn attempts(&self, level: &Level, key: &str, value: &str) -> (Vec<Attempt>, Option<&RuleNode>) {
        let selected = level.find(&self.selectors, key, value);
        let (exact, default) = level.exact_and_default(&self.selectors, key, value);
        let node = |id: u32| &self.nodes[id as usize];
        let selector = |id: u32| &self.selectors[id as usize];
        let outcome = |id: u32, by: MatchedBy, is_match: bool| match selected {
            Some(step) if step.node == id && step.by == by => AttemptOutcome::Selected,
            _ if !is_match => AttemptOutcome::NoMatch,
            _ => AttemptOutcome::NotTried,
        };
        let place = |id: u32| Some(node(id).origin.to_string());
        let candidate = |id: Option<u32>, by: MatchedBy| Attempt {
            by,
            pattern: None,
            place: id.and_then(place),
            outcome: id.map_or(AttemptOutcome::NoRule, |id| outcome(id, by, true)),
        };
        let mut attempts = vec![candidate(exact, MatchedBy::Value)];
        let composite = format!("{key}_{value}");
        for (pattern, id) in level.patterns(key) {
            let (text, shown) = match level {
                Level::Native(_) => (value, selector(id).value().to_owned()),
                Level::Envoy(_) => (composite.as_str(), selector(id).composite()),
            };
            let outcome = outcome(id, MatchedBy::Pattern, pattern.matches(text.as_bytes()));
            attempts.push(Attempt {
                by: MatchedBy::Pattern,
                pattern: Some(shown),
                place: place(id),
                outcome,
            });
        }
        attempts.push(candidate(default, MatchedBy::Default));
        (attempts, selected.map(|step| node(step.node)))
    }
}

/// Describes a rule in one line.
fn described(rule: &Rule) -> String {
    let limit = match &rule.limit {
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Blocked { is_hidden, .. } => {
            let hidden = if *is_hidden { " hidden" } else { "" };
            format!("limit 0{hidden}: every request is denied")
        }
        limit @ Limit::Policies(_) => format!("limit {limit}"),
    };
    let mode = match rule.enforced_percent() {
        0 => ", in shadow mode".to_owned(),
        100 => String::new(),
        percent => format!(", enforced for {percent} % of the keys"),
    };
    let quota = if rule.is_quota { ", in quota mode" } else { "" };
    let place = rule
        .origin
        .as_ref()
        .map(|origin| format!(" ({origin})"))
        .unwrap_or_default();
    format!("{limit} of {}{place}{mode}{quota}", rule.metric)
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for level in &self.levels {
            writeln!(f, "{}={}", printable(&level.key), printable(&level.value))?;
            for attempt in &level.attempts {
                match (attempt.by, &attempt.pattern) {
                    (MatchedBy::Value, _) => write!(f, "  value {}", printable(&level.value))?,
                    (MatchedBy::Pattern, pattern) => {
                        write!(
                            f,
                            "  pattern {}",
                            printable(pattern.as_deref().unwrap_or_default())
                        )?;
                    }
                    (MatchedBy::Default, _) => write!(f, "  key without a value")?,
                }
                if let Some(place) = &attempt.place {
                    write!(f, " ({place})")?;
                }
                let outcome = match attempt.outcome {
                    AttemptOutcome::NoRule => "no rule",
                    AttemptOutcome::NoMatch => "does not match",
                    AttemptOutcome::Selected => "selected",
                    AttemptOutcome::NotTried => "not tried, an earlier one was selected",
                };
                writeln!(f, ": {outcome}")?;
            }
        }
        writeln!(f, "{}", printable(&self.outcome))
    }
}
