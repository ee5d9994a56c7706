//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from
//! configuration, never from a request. The limiter counts checks, outages and durations itself;
//! the layer adds what only it knows: its labels, shadow mode, rejections and waiting requests.
//! Labels that users choose are in `labels.rs`.

#[cfg(not(feature = "metrics"))]
use off as recorded;
#[cfg(feature = "metrics")]
use on as recorded;

pub use recorded::DecisionCounters;
pub(crate) use recorded::{LabelIndex, LookedUpMetrics, count_rejection};

impl std::fmt::Debug for DecisionCounters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DecisionCounters(..)")
    }
}

#[cfg(feature = "metrics")]
mod on {
    use std::{
        collections::HashMap,
        sync::{Arc, Mutex, OnceLock, PoisonError},
    };

    use http::request::Parts;
    use metrics::{Counter, Label, Unit, counter, describe_counter};
    use tollgate_core::{Decision, Policy, PolicySet};

    use crate::labels::MetricLabels;

    /// Counts the decisions of one limiter by policy and outcome, in the metric
    /// `tollgate_decisions_total`.
    ///
    /// [`GateOptions::decision_counters`](crate::gate::GateOptions::decision_counters) creates it,
    /// and [`GateOptions::count`](crate::gate::GateOptions::count) adds to it. Clones share the
    /// series.
    // One entry for each list of label values. An entry is registered with its first decision, so
    // that later decisions need no look-up.
    #[derive(Clone)]
    pub struct DecisionCounters {
        series: Arc<[OnceLock<Series>]>,
        /// The names of the policies are not label values.
        is_other: bool,
    }

    /// Shares the series of limiters that are looked up between those whose policies have the same
    /// names.
    ///
    /// The names may come from tenants. They are label values, so their number is bounded.
    #[derive(Default)]
    pub(crate) struct LookedUpMetrics {
        by_names: Mutex<HashMap<String, DecisionCounters>>,
        other: OnceLock<DecisionCounters>,
    }

    /// Bounds the lists of names. The policies of further lists are counted as `other`.
    const MAX_LISTS: usize = 64;

    const OTHER: &str = "other";

    type Series = Vec<PolicyCounters>;

    struct PolicyCounters {
        allowed: Counter,
        denied: Counter,
        shadowed: Counter,
    }

    /// Selects the label values of a request.
    #[derive(Clone, Copy)]
    pub(crate) struct LabelIndex(usize);

    impl LabelIndex {
        pub(crate) fn of(parts: &Parts, labels: &MetricLabels) -> Self {
            Self(labels.index_of(parts))
        }

        fn labels(self, labels: &MetricLabels) -> Vec<Label> {
            labels
                .pairs(self.0)
                .map(|(name, value)| Label::new(name, value))
                .collect()
        }
    }

    impl DecisionCounters {
        pub(crate) fn new(labels: &MetricLabels) -> Self {
            Self {
                series: (0..labels.len()).map(|_| OnceLock::new()).collect(),
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
            let Some(series) = self.series.get(index.0) else {
                return;
            };
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

        fn register(&self, decision: &Decision, labels: &[Label]) -> Series {
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

    impl LookedUpMetrics {
        /// Returns the series of the policies of a set.
        pub(crate) fn of(&self, policies: &PolicySet, labels: &MetricLabels) -> DecisionCounters {
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
    }

    /// Describes the metrics of all layers to the recorder.
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
        let mut all = index.labels(labels);
        all.insert(0, Label::from_static_parts("reason", reason));
        counter!("tollgate_rejections_total", all).increment(1);
    }
}

/// Stands in without the feature: the same functions, which do nothing.
#[cfg(not(feature = "metrics"))]
mod off {
    use http::request::Parts;
    use tollgate_core::{Decision, PolicySet};

    use crate::labels::MetricLabels;

    /// Counts nothing without the feature `metrics`.
    #[derive(Clone)]
    pub struct DecisionCounters(());

    #[derive(Default)]
    pub(crate) struct LookedUpMetrics(());

    #[derive(Clone, Copy)]
    pub(crate) struct LabelIndex;

    impl LabelIndex {
        pub(crate) fn of(_: &Parts, _: &MetricLabels) -> Self {
            Self
        }
    }

    impl DecisionCounters {
        pub(crate) fn new(_: &MetricLabels) -> Self {
            Self(())
        }

        pub(crate) fn record_decision(
            &self,
            _: &Decision,
            _: &MetricLabels,
            _: LabelIndex,
            _: bool,
        ) {
        }
    }

    impl LookedUpMetrics {
        pub(crate) fn of(&self, _: &PolicySet, _: &MetricLabels) -> DecisionCounters {
            DecisionCounters(())
        }
    }

    pub(crate) fn count_rejection(_: &'static str, _: &MetricLabels, _: LabelIndex) {}
}
