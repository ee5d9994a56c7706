//! The series of each rule and of the loads, in the recorder of the `metrics` facade.
//! Which units count as near or over is decided in `usage.rs`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
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

/// Bounds the names of rules that become label values of one [`Rules`](crate::Rules), over all its
/// reloads. Further rules are counted together.
const MAX_NAMES: usize = 1_000;

const OTHER: &str = "other";

/// The rules of overrides, whose descriptors are those of requests.
const OVERRIDE: &str = "override";

/// Stores the series of the rules of one handle. A name keeps its series when the rules are
/// replaced.
#[derive(Default)]
pub(crate) struct RuleMetrics {
    by_name: Mutex<HashMap<Box<str>, Arc<Series>>>,
    of_overrides: OnceLock<Arc<Series>>,
    loads: OnceLock<LoadSeries>,
}

/// Remembers the series of one rule, so that a check needs no look-up.
#[derive(Clone, Default)]
pub(crate) struct RuleSeries(OnceLock<Arc<Series>>);

struct Series {
    units: Counter,
    within: Counter,
    near: Counter,
    over: Counter,
    shadow: Counter,
}

struct LoadSeries {
    succeeded: Counter,
    failed: Counter,
    is_refused: Gauge,
}

impl RuleMetrics {
    /// Counts units of the rule that has this name and these series.
    pub(crate) fn record(&self, series: &RuleSeries, name: &str, usage: Usage) {
        series.0.get_or_init(|| self.series(name)).record(usage);
    }

    /// Counts units of a limit that the request brought along.
    pub(crate) fn record_override(&self, usage: Usage) {
        self.of_overrides
            .get_or_init(|| Arc::new(Series::new(OVERRIDE)))
            .record(usage);
    }

    /// Counts a load, and notes whether the files are those in force.
    pub(crate) fn record_load(&self, has_succeeded: bool) {
        let series = self.loads.get_or_init(LoadSeries::new);
        if has_succeeded {
            &series.succeeded
        } else {
            &series.failed
        }
        .increment(1);
        series.is_refused.set(if has_succeeded { 0.0 } else { 1.0 });
    }

    #[cold]
    fn series(&self, name: &str) -> Arc<Series> {
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

    fn record(&self, usage: Usage) {
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
        }
    }
}

tollgate::debug_fields! { RuleMetrics: .. }
