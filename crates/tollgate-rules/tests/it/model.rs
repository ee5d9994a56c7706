//! Matching compared with a plain reading of the language.

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_rules::{Compat, Descriptor, Format, RuleSet};

/// A descriptor of the file.
#[derive(Clone, Debug)]
struct Rule {
    key: String,
    value: String,
    limit: Option<u32>,
    below: Vec<Self>,
}

impl Rule {
    fn composite(&self) -> String {
        if self.value.is_empty() {
            self.key.clone()
        } else {
            format!("{}_{}", self.key, self.value)
        }
    }

    fn json(&self) -> Value {
        let mut json = json!({"key": self.key, "descriptors": self.below.iter().map(Self::json).collect::<Vec<_>>()});
        if !self.value.is_empty() {
            json["value"] = self.value.clone().into();
        }
        if let Some(limit) = self.limit {
            json["rate_limit"] = json!({"unit": "day", "requests_per_unit": limit});
        }
        json
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => {
            let Some(text) = text.strip_prefix(start) else {
                return false;
            };
            (0..=text.len())
                .filter(|at| text.is_char_boundary(*at))
                .any(|at| matches(rest, &text[at..]))
        }
    }
}

/// Chooses among the rules of one level, as section 4 of the language says.
fn choose<'r>(compat: Compat, level: &'r [Rule], key: &str, value: &str) -> Option<&'r Rule> {
    let joined = format!("{key}_{value}");
    match compat {
        Compat::Envoy => {
            let exact = level.iter().find(|rule| rule.composite() == joined);
            let mut patterns = level.iter().filter(|rule| rule.composite().contains('*'));
            let pattern = || patterns.find(|rule| matches(&rule.composite(), &joined));
            let default = || level.iter().find(|rule| rule.composite() == key);
            exact.or_else(pattern).or_else(default)
        }
        _ => {
            let own = || level.iter().filter(|rule| rule.key == key);
            let exact = own().find(|rule| {
                !rule.value.is_empty() && !rule.value.contains('*') && rule.value == value
            });
            let pattern =
                || own().find(|rule| rule.value.contains('*') && matches(&rule.value, value));
            exact
                .or_else(pattern)
                .or_else(|| own().find(|rule| rule.value.is_empty()))
        }
    }
}

fn expected(compat: Compat, rules: &[Rule], entries: &[(String, String)]) -> Option<u32> {
    let mut level = rules;
    let mut limit = None;
    for (key, value) in entries {
        let rule = choose(compat, level, key, value)?;
        (level, limit) = (&rule.below, rule.limit);
    }
    limit
}

fn level(depth: u32) -> BoxedStrategy<Vec<Rule>> {
    let below = if depth == 0 {
        Just(Vec::new()).boxed()
    } else {
        level(depth - 1)
    };
    let rule = (
        "[ab](_[ab])?",
        "|[ab_]{1,2}|[ab]{0,2}\\*[ab]{0,1}",
        prop::option::of(1..1_000_000_u32),
        below,
    );
    let rule = rule.prop_map(|(key, value, limit, below)| Rule {
        key,
        value,
        limit,
        below,
    });
    prop::collection::vec(rule, 0..14)
        .prop_map(|rules| {
            let mut different: Vec<Rule> = Vec::new();
            for rule in rules {
                // Different texts are different pairs too.
                if different
                    .iter()
                    .all(|other| other.composite() != rule.composite())
                {
                    different.push(rule);
                }
            }
            different
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn rules_are_found_as_the_language_says(
        rules in level(2),
        requests in prop::collection::vec(prop::collection::vec(("[ab](_[ab])?", "[ab*_]{0,3}"), 1..4), 20),
    ) {
        let text = json!({"domain": "d", "descriptors": rules.iter().map(Rule::json).collect::<Vec<_>>()}).to_string();
        for compat in [Compat::Native, Compat::Envoy] {
            let set = RuleSet::builder().compat(compat).parse(&text, Format::Json).unwrap();
            for entries in &requests {
                let descriptor: Descriptor<'_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
                let found = set.find("d", &descriptor).map(|found| found.rule().amount().unwrap().0 as u32);
                prop_assert_eq!(found, expected(compat, &rules, entries), "{:?} {:?} {}", compat, entries, text);
                let explained = set.explain("d", &descriptor).to_string();
                let line = found.map_or("\nno limit".to_owned(), |limit| format!("\nlimit {limit}/day"));
                prop_assert!(explained.contains(&line), "{} in {}", line, explained);
            }
        }
    }

    #[test]
    fn different_descriptors_have_different_counters_in_native_mode(
        one in prop::collection::vec(("[a_,()]{1,3}", "[a_,()]{0,3}"), 1..4),
        two in prop::collection::vec(("[a_,()]{1,3}", "[a_,()]{0,3}"), 1..4),
    ) {
        let key = |entries: &[(String, String)]| {
            let limit = tollgate_rules::LimitOverride::new(1, tollgate_rules::Unit::Day);
            let descriptor: Descriptor<'_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
            let descriptor = descriptor.with_limit(limit);
            let set = RuleSet::parse(r#"{"domain": "d"}"#, Format::Json).unwrap();
            set.find("d", &descriptor).unwrap().key()
        };
        prop_assert_eq!(key(&one) == key(&two), one == two, "{:?} {:?}", one, two);
    }
}
