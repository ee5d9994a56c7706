//! Metrics through the `metrics` facade, behind the feature of that name. Their labels come from configuration, never
//! from a request. The limiter counts checks, outages and durations itself; the layer adds what only it knows: its labels,
//! shadow mode, rejections and waiting requests.

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{LabelIndex, LimitMetrics, add_waiting, count_rejection};
#[cfg(feature = "metrics")]
pub(crate) use on::{LabelIndex, LimitMetrics, add_waiting, count_rejection};

#[cfg(feature = "metrics")]
mod on {
    use std::sync::OnceLock;

    use http::request::Parts;
    use metrics::{Counter, Label, Unit, counter, describe_counter, describe_gauge, gauge};
    use tollgate::{Decision, Policy};

    use crate::labels::MetricLabels;

    /// Stores the series of one limiter, one entry for each list of label values. An entry is registered with its first
    /// decision, so that later decisions need no look-up.
    pub(crate) struct LimitMetrics(Box<[OnceLock<Series>]>);

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
            labels.pairs(self.0).map(|(name, value)| Label::new(name, value)).collect()
        }
    }

    impl LimitMetrics {
        pub(crate) fn new(labels: &MetricLabels) -> Self {
            Self((0..labels.len()).map(|_| OnceLock::new()).collect())
        }

        /// Counts a decision.
        pub(crate) fn record_decision(
            &self,
            decision: &Decision,
            labels: &MetricLabels,
            index: LabelIndex,
            is_shadow: bool,
        ) {
            let Some(series) = self.0.get(index.0) else { return };
            let series = series.get_or_init(|| register(decision, &index.labels(labels)));
            for (state, counters) in decision.states().zip(series) {
                if decision.is_allowed() {
                    counters.allowed.increment(1);
                } else if state.is_exceeded() {
                    if is_shadow { &counters.shadowed } else { &counters.denied }.increment(1);
                }
            }
        }
    }

    fn register(decision: &Decision, labels: &[Label]) -> Series {
        describe();
        decision.policies().iter().map(|policy| PolicyCounters::new(policy, labels)).collect()
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
        describe_gauge!("tollgate_waiting", Unit::Count, "Requests that wait for quota.");
    }

    impl PolicyCounters {
        fn new(policy: &Policy, labels: &[Label]) -> Self {
            let counter = |outcome: &'static str| {
                let own = [Label::new("policy", policy.name().to_owned()), Label::new("outcome", outcome)];
                counter!("tollgate_decisions_total", [&own, labels].concat())
            };
            Self { allowed: counter("allowed"), denied: counter("denied"), shadowed: counter("shadowed") }
        }
    }

    pub(crate) fn count_rejection(reason: &'static str, labels: &MetricLabels, index: LabelIndex) {
        let mut all = index.labels(labels);
        all.insert(0, Label::from_static_parts("reason", reason));
        counter!("tollgate_rejections_total", all).increment(1);
    }

    pub(crate) fn add_waiting(change: f64) {
        gauge!("tollgate_waiting").increment(change);
    }
}

/// Stands in without the feature: the same functions, which do nothing.
#[cfg(not(feature = "metrics"))]
mod off {
    use http::request::Parts;
    use tollgate::Decision;

    use crate::labels::MetricLabels;

    pub(crate) struct LimitMetrics(());

    #[derive(Clone, Copy)]
    pub(crate) struct LabelIndex;

    impl LabelIndex {
        pub(crate) fn of(_: &Parts, _: &MetricLabels) -> Self {
            Self
        }
    }

    impl LimitMetrics {
        pub(crate) fn new(_: &MetricLabels) -> Self {
            Self(())
        }

        pub(crate) fn record_decision(&self, _: &Decision, _: &MetricLabels, _: LabelIndex, _: bool) {}
    }

    pub(crate) fn count_rejection(_: &'static str, _: &MetricLabels, _: LabelIndex) {}

    pub(crate) fn add_waiting(_: f64) {}
}
