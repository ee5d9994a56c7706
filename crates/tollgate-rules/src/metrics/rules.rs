//! The series of each rule and of the loads, in the recorder of the `metrics` facade.
//! When they are counted is in `mod.rs`, and which units count as near or over in `usage.rs`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use metrics::{Counter, Gauge, Label, Unit, counter, describe_counter, describe_gauge, gauge};

use crate::Usage;

const UNITS: &str = "tollgate_rule_units_total";
const WITHIN: &str = "tollgate_rule_units_within_total";
const NEAR: &str = "tollgate_rule_units_near_total";
const OVER: &str = "tollgate_rule_units_over_total";
const SHADOW: &str = "tollgate_rule_units_shadow_total";
const LOADS: &str = "tollgate_rule_loads_total";
const REFUSED: &str = "tollgate_rules_refused";
const SINCE: &str = "tollgate_rules_since_timestamp_seconds";

/// Bounds the names of rules that become label values of one [`Rules`](crate::Rules), over all its
/// reloads. Further rules are counted together.
const MAX_NAMES: usize = 1_000;

const OTHER: &str = "other";

/// The rules of overrides, whose descriptors are those of requests.
const OVERRIDE: &str = "override";

/// Stores the series of all names of rules, those of overrides, and those of loads.
#[derive(Default)]
pub(super) struct AllSeries {
    by_name: Mutex<HashMap<Box<str>, Arc<Series>>>,
    of_overrides: OnceLock<Series>,
    of_loads: OnceLock<LoadSeries>,
}

/// The series of one rule.
pub(super) struct Series {
    units: Counter,
    within: Counter,
    near: Counter,
    over: Counter,
    shadow: Counter,
}

/// The series of the loads of rules.
pub(super) struct LoadSeries {
    succeeded: Counter,
    failed: Counter,
    is_refused: Gauge,
    since: Gauge,
}

impl AllSeries {
    /// Returns the series of the rules with this name.
    #[cold]
    pub(super) fn of(&self, name: &str) -> Arc<Series> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = by_name.get(name) {
            return Arc::clone(series);
        }
        let name = if by_name.len() < MAX_NAMES {
            name
        } else {
            OTHER
        };
        Arc::clone(
            by_name
                .entry(name.into())
                .or_insert_with(|| Arc::new(Series::new(name))),
        )
    }

    pub(super) fn of_overrides(&self) -> &Series {
        self.of_overrides.get_or_init(|| Series::new(OVERRIDE))
    }

    pub(super) fn of_loads(&self) -> &LoadSeries {
        self.of_loads.get_or_init(LoadSeries::new)
    }
}

impl Series {
    fn new(rule: &str) -> Self {
        for (name, text) in [
            (UNITS, "Units that requests asked for, by rule."),
            (WITHIN, "Units of checks within the limit, by rule."),
            (
                NEAR,
                "Units above four fifths of the limit and not over it, by rule.",
            ),
            (OVER, "Units over the limit, by rule."),
            (
                SHADOW,
                "Units over the limit of a rule in shadow mode, by rule.",
            ),
        ] {
            describe_counter!(name, Unit::Count, text);
        }
        let counter =
            |metric: &'static str| counter!(metric, [Label::new("rule", rule.to_owned())].to_vec());
        Self {
            units: counter(UNITS),
            within: counter(WITHIN),
            near: counter(NEAR),
            over: counter(OVER),
            shadow: counter(SHADOW),
        }
    }

    pub(super) fn record(&self, usage: Usage) {
        let counts = [
            (&self.units, usage.total),
            (&self.within, usage.within),
            (&self.near, usage.near),
            (&self.over, usage.over),
            (&self.shadow, usage.shadow),
        ];
        for (counter, units) in counts {
            if units > 0 {
                counter.increment(units);
            }
        }
    }
}

impl LoadSeries {
    fn new() -> Self {
        describe_counter!(
            LOADS,
            Unit::Count,
            "Loads of rules, by outcome: succeeded or failed."
        );
        describe_gauge!(
            REFUSED,
            Unit::Count,
            "1 while the files are refused and older rules are in force, 0 otherwise."
        );
        describe_gauge!(
            SINCE,
            Unit::Seconds,
            "The Unix time since which the rules in force have their content."
        );
        let loads = |outcome: &'static str| {
            counter!(
                LOADS,
                [Label::from_static_parts("outcome", outcome)].to_vec()
            )
        };
        Self {
            succeeded: loads("succeeded"),
            failed: loads("failed"),
            is_refused: gauge!(REFUSED),
            since: gauge!(SINCE),
        }
    }

    pub(super) fn record(&self, has_succeeded: bool) {
        if has_succeeded {
            &self.succeeded
        } else {
            &self.failed
        }
        .increment(1);
        self.is_refused.set(if has_succeeded { 0.0 } else { 1.0 });
    }

    pub(super) fn record_change(&self, at: SystemTime) {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.since.set(since.as_secs_f64());
    }
}
