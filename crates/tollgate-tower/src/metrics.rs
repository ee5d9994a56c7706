//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from
//! configuration, never from a request. The limiter counts checks, outages and durations itself;
//! the layer adds what only it knows: its labels, shadow mode, rejections and waiting requests.
//! Labels that users choose are in `labels.rs`.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, reason = "nothing is recorded without the feature")
)]

use std::fmt;
#[cfg(feature = "metrics")]
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use http::request::Parts;
#[cfg(feature = "metrics")]
use metrics::{Counter, Label, Unit, counter, describe_counter};
#[cfg(feature = "metrics")]
use tollgate_core::Policy;
use tollgate_core::{Decision, PolicySet};

use crate::labels::MetricLabels;

/// Counts the decisions of one limiter by policy and outcome, in the metric
/// `tollgate_decisions_total`. It counts nothing without the feature `metrics`.
///
/// [`GateOptions::decision_counters`](crate::gate::GateOptions::decision_counters) creates it, and
/// [`GateOptions::count`](crate::gate::GateOptions::count) adds to it. Clones share the series.
// One entry for each list of label values. An entry is registered with its first decision, so that
// later decisions need no look-up.
#[derive(Clone)]
pub struct DecisionCounters {
    #[cfg(feature = "metrics")]
    series: Arc<[OnceLock<Vec<PolicyCounters>>]>,
    /// The names of the policies are not label values.
    #[cfg(feature = "metrics")]
    is_other: bool,
}

/// Shares the series of limiters that are looked up between those whose policies have the same
/// names.
///
/// The names may come from tenants. They are label values, so their number is bounded.
#[derive(Default)]
pub(crate) struct LookedUpMetrics {
    #[cfg(feature = "metrics")]
    by_names: Mutex<HashMap<String, DecisionCounters>>,
    #[cfg(feature = "metrics")]
    other: OnceLock<DecisionCounters>,
}

/// Selects the label values of a request.
#[derive(Clone, Copy)]
pub(crate) struct LabelIndex {
    #[cfg(feature = "metrics")]
    index: usize,
}

#[cfg(feature = "metrics")]
struct PolicyCounters {
    allowed: Counter,
    denied: Counter,
    shadowed: Counter,
}

/// Bounds the lists of names. The policies of further lists are counted as `other`.
#[cfg(feature = "metrics")]
const MAX_LISTS: usize = 64;

#[cfg(feature = "metrics")]
const OTHER: &str = "other";

impl LabelIndex {
    pub(crate) fn of(parts: &Parts, labels: &MetricLabels) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            index: labels.index_of(parts),
        }
    }

    #[cfg(feature = "metrics")]
    fn labels(self, labels: &MetricLabels) -> Vec<Label> {
        labels
            .pairs(self.index)
            .map(|(name, value)| Label::new(name, value))
            .collect()
    }
}

impl DecisionCounters {
    pub(crate) fn new(labels: &MetricLabels) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            series: (0..labels.len()).map(|_| OnceLock::new()).collect(),
            #[cfg(feature = "metrics")]
            is_other: false,
        }
    }

    /// Counts a decision.
    pub(crate) fn record_decision(
        &self,
        decision: &Decision,
        labels: &MetricLabels,
        index: LabelIndex,
        is_shadow: bool,
    ) {
        #[cfg(feature = "metrics")]
        if let Some(series) = self.series.get(index.index) {
            let series = series.get_or_init(|| self.register(decision, &index.labels(labels)));
            for (state, counters) in decision.states().zip(series) {
                if decision.is_allowed() {
                    counters.allowed.increment(1);
                } else if state.is_exceeded() {
                    if is_shadow {
                        &counters.shadowed
                    } else {
                        &counters.denied
                    }
                    .increment(1);
                }
            }
        }
    }

    #[cfg(feature = "metrics")]
    fn register(&self, decision: &Decision, labels: &[Label]) -> Vec<PolicyCounters> {
        describe();
        if self.is_other {
            // As many as a set may have, because the sets differ.
            return (0..PolicySet::MAX_POLICIES)
                .map(|_| PolicyCounters::new(OTHER, labels))
                .collect();
        }
        decision
            .policies()
            .iter()
            .map(|policy| PolicyCounters::new(policy.name(), labels))
            .collect()
    }
}

impl fmt::Debug for DecisionCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecisionCounters(..)")
    }
}

impl LookedUpMetrics {
    /// Returns the series of the policies of a set.
    pub(crate) fn of(&self, policies: &PolicySet, labels: &MetricLabels) -> DecisionCounters {
        #[cfg(feature = "metrics")]
        {
            // No name contains a plus sign.
            let names = policies
                .iter()
                .map(Policy::name)
                .collect::<Vec<_>>()
                .join("+");
            let mut by_names = self.by_names.lock().unwrap_or_else(PoisonError::into_inner);
            if by_names.len() >= MAX_LISTS && !by_names.contains_key(&names) {
                let other = || DecisionCounters {
                    is_other: true,
                    ..DecisionCounters::new(labels)
                };
                return self.other.get_or_init(other).clone();
            }
            by_names
                .entry(names)
                .or_insert_with(|| DecisionCounters::new(labels))
                .clone()
        }
        #[cfg(not(feature = "metrics"))]
        DecisionCounters::new(labels)
    }
}

/// Describes the metrics of all layers to the recorder.
#[cfg(feature = "metrics")]
fn describe() {
    describe_counter!(
        "tollgate_decisions_total",
        Unit::Count,
        "Decisions on requests by policy, outcome (allowed, denied or shadowed) and the labels of the layer."
    );
    describe_counter!(
        "tollgate_rejections_total",
        Unit::Count,
        "Requests that the layer rejected, by reason and the labels of the layer."
    );
}

#[cfg(feature = "metrics")]
impl PolicyCounters {
    fn new(policy: &str, labels: &[Label]) -> Self {
        let counter = |outcome: &'static str| {
            let own = [
                Label::new("policy", policy.to_owned()),
                Label::new("outcome", outcome),
            ];
            counter!("tollgate_decisions_total", [&own, labels].concat())
        };
        Self {
            allowed: counter("allowed"),
            denied: counter("denied"),
            shadowed: counter("shadowed"),
        }
    }
}

pub(crate) fn count_rejection(reason: &'static str, labels: &MetricLabels, index: LabelIndex) {
    #[cfg(feature = "metrics")]
    {
        let mut all = index.labels(labels);
        all.insert(0, Label::from_static_parts("reason", reason));
        counter!("tollgate_rejections_total", all).increment(1);
    }
}
