//! The rules as an application uses them.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod actions;
mod any_input;
mod apart;
mod bad_input;
mod calendar;
mod compat;
mod documents;
mod enforce;
mod envoy;
mod envoy_counters;
mod explain;
mod fair_shares;
mod files;
mod growing;
mod large;
mod layer;
mod lease;
mod limiter;
mod limits;
mod lockouts;
mod matching;
mod metrics;
mod model;
mod names;
mod networks;
mod priorities;
mod refunds;
mod reload;
mod reservations;
mod spring;
mod steps;
mod verdict;
mod warnings;

use tollgate::{MemoryStore, store::Clock};
use tollgate_rules::{Compat, Descriptor, Format, RuleErrors, RuleSet};

/// Creates a store in the process whose clock stands still.
fn still() -> MemoryStore {
    MemoryStore::builder()
        .clock(Clock::manual(1_000_000_000))
        .build()
}

/// Parses YAML in native mode.
fn rules(yaml: &str) -> RuleSet {
    RuleSet::parse(yaml, Format::Yaml).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Parses YAML in the mode of Envoy's service.
fn envoy_rules(yaml: &str) -> RuleSet {
    let set = RuleSet::builder()
        .compat(Compat::Envoy)
        .parse(yaml, Format::Yaml);
    set.unwrap_or_else(|errors| panic!("{errors}"))
}

fn refused(yaml: &str) -> RuleErrors {
    RuleSet::parse(yaml, Format::Yaml).expect_err("the rules are wrong")
}

fn envoy_refused(yaml: &str) -> RuleErrors {
    RuleSet::builder()
        .compat(Compat::Envoy)
        .parse(yaml, Format::Yaml)
        .expect_err("the rules are wrong")
}

/// Waits until a condition holds: less than the 30 s after which files are looked at without an
/// event.
#[track_caller]
fn until(what: &str, holds: impl FnMut() -> bool) {
    tollgate_tests::wait::until(what, std::time::Duration::from_secs(20), holds);
}

/// Returns the name of the limit that applies in the domain `d`, or else its amount.
fn limit(rules: &RuleSet, entries: &[(&'static str, &'static str)]) -> Option<String> {
    let descriptor: Descriptor<'_> = entries.iter().copied().collect();
    let found = rules.find("d", &descriptor)?;
    let rule = found.rule();
    Some(rule.name().map_or_else(
        || {
            rule.amount()
                .map_or("unlimited".to_owned(), |(n, _)| n.to_string())
        },
        str::to_owned,
    ))
}
