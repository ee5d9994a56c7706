//! Counts what each rule would have denied.
//! Counts over time are in `series.rs`; texts and tables are made in `report.rs`.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use tollgate::{Key, PolicySet};
use tollgate_rules::Rule;

use super::series::BinnedCounts;

/// The most denied keys of a rule that are counted each.
const MAX_KEYS: usize = 65_536;

/// Counts the requests of one rule.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) rule: RuleName,
    pub(super) requests: u64,
    pub(super) denied: u64,
    /// Requests to which the rule did not apply, because another one replaced it.
    pub(super) replaced: u64,
    denied_keys: HashSet<Key>,
    pub(super) series: BinnedCounts,
    /// The requests, when a quota is to be suggested.
    pub(super) events: Option<Events>,
}

/// Names a rule and its limit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RuleName {
    #[serde(rename = "rule")]
    pub(super) metric: String,
    pub(super) place: String,
    pub(super) limit: String,
    pub(super) is_shadow: bool,
    #[serde(skip)]
    pub(super) policies: Option<PolicySet>,
}

/// The requests of a rule: their times and their keys.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) all: Vec<Event>,
    pub(super) keys: Vec<Key>,
    numbers: HashMap<Key, u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) time_us: u64,
    /// The index of the key.
    pub(super) key: u32,
}

impl RuleName {
    pub(super) fn new(rule: &Rule) -> Self {
        let place = match (rule.file(), rule.line()) {
            (Some(file), Some(line)) => format!("{}:{line}", file.display()),
            _ => String::new(),
        };
        Self {
            metric: rule.metric_name().to_owned(),
            place,
            limit: rule.limit().to_string(),
            is_shadow: rule.is_shadow(),
            policies: rule.policies().cloned(),
        }
    }
}

impl Tally {
    pub(super) fn new(rule: &Rule, start_us: u64, has_events: bool) -> Self {
        Self {
            rule: RuleName::new(rule),
            requests: 0,
            denied: 0,
            replaced: 0,
            denied_keys: HashSet::new(),
            series: BinnedCounts::new(start_us),
            events: has_events.then(Events::default),
        }
    }

    /// Counts a request to which the rule applies.
    pub(super) fn add(&mut self, time_us: u64, is_denied: bool, key: Key) {
        self.requests += 1;
        self.denied += u64::from(is_denied);
        self.series.add(time_us, is_denied);
        if is_denied && (self.denied_keys.len() < MAX_KEYS) {
            self.denied_keys.insert(key.clone());
        }
        if let Some(events) = &mut self.events {
            events.add(time_us, key);
        }
    }

    /// Returns the number of keys that were denied, and whether there may be more.
    pub(super) fn denied_keys(&self) -> (usize, bool) {
        (self.denied_keys.len(), self.denied_keys.len() >= MAX_KEYS)
    }
}

impl Events {
    fn add(&mut self, time_us: u64, key: Key) {
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            next
        });
        self.all.push(Event {
            time_us,
            key: number,
        });
    }
}
