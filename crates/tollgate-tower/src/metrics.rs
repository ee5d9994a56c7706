//! Counts through the `metrics` facade, behind the feature of that name. Labels are what was
//! configured, never what a client sent.

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Limit, Place, Timer, failed, rejected, waiting};
#[cfg(feature = "metrics")]
pub(crate) use on::{Limit, Place, Timer, failed, rejected, waiting};

#[cfg(feature = "metrics")]
mod on {
    use std::{sync::OnceLock, time::Instant};

    use http::request::Parts;
    use metrics::{Counter, Histogram, Label, counter, gauge, histogram};
    use tollgate::{Decision, Error, ErrorKind};

    use crate::MetricLabels;

    /// The series of one limiter, by the place of a request among the labels. They are registered
    /// with the first decision, so that they do not cost a look-up for each.
    pub(crate) struct Limit(Box<[OnceLock<Series>]>);

    struct Series {
        duration: Histogram,
        policies: Vec<Policy>,
    }

    struct Policy {
        allowed: Counter,
        denied: Counter,
        shadowed: Counter,
    }

    /// The place of a request among the labels.
    #[derive(Clone, Copy)]
    pub(crate) struct Place(usize);

    impl Place {
        pub(crate) fn of(parts: &Parts, labels: &MetricLabels) -> Self {
            Self(labels.place(parts))
        }

        fn labels(self, labels: &MetricLabels) -> Vec<Label> {
            labels.at(self.0).map(|(name, value)| Label::new(name, value)).collect()
        }
    }

    /// When a check began.
    pub(crate) struct Timer(Instant);

    impl Timer {
        pub(crate) fn start() -> Self {
            Self(Instant::now())
        }
    }

    impl Limit {
        pub(crate) fn new(labels: &MetricLabels) -> Self {
            Self((0..labels.places()).map(|_| OnceLock::new()).collect())
        }

        /// `timer` is absent where nobody measured.
        pub(crate) fn decided(
            &self,
            decision: &Decision,
            labels: &MetricLabels,
            place: Place,
            timer: Option<&Timer>,
            is_shadow: bool,
        ) {
            let Some(series) = self.0.get(place.0) else { return };
            let series = series.get_or_init(|| Series::new(decision, &place.labels(labels)));
            if let Some(timer) = timer {
                series.duration.record(timer.0.elapsed());
            }
            for (state, policy) in decision.states().zip(&series.policies) {
                if decision.is_allowed() {
                    policy.allowed.increment(1);
                } else if state.is_exceeded() {
                    if is_shadow { &policy.shadowed } else { &policy.denied }.increment(1);
                }
            }
            if let Some(reason) = decision.degraded().map(ErrorKind::as_str) {
                counter!("tollgate_degraded_total", "reason" => reason).increment(1);
            }
        }
    }

    impl Series {
        fn new(decision: &Decision, labels: &[Label]) -> Self {
            let counter = |policy: &tollgate::Policy, outcome: &'static str| {
                let own = [Label::new("policy", policy.name().to_owned()), Label::new("outcome", outcome)];
                counter!("tollgate_decisions_total", [&own, labels].concat())
            };
            Self {
                duration: histogram!("tollgate_check_duration_seconds"),
                policies: decision
                    .policies()
                    .iter()
                    .map(|policy| Policy {
                        allowed: counter(policy, "allowed"),
                        denied: counter(policy, "denied"),
                        shadowed: counter(policy, "shadowed"),
                    })
                    .collect(),
            }
        }
    }

    pub(crate) fn rejected(reason: &'static str, labels: &MetricLabels, place: Place) {
        let mut all = place.labels(labels);
        all.insert(0, Label::from_static_parts("reason", reason));
        counter!("tollgate_rejections_total", all).increment(1);
    }

    pub(crate) fn failed(error: &Error) {
        counter!("tollgate_errors_total", "reason" => error.kind().as_str()).increment(1);
    }

    pub(crate) fn waiting(change: f64) {
        gauge!("tollgate_waiting").increment(change);
    }
}

#[cfg(not(feature = "metrics"))]
mod off {
    use http::request::Parts;
    use tollgate::{Decision, Error, ErrorKind};

    use crate::MetricLabels;

    pub(crate) struct Limit(());

    #[derive(Clone, Copy)]
    pub(crate) struct Place;

    impl Place {
        pub(crate) fn of(_: &Parts, _: &MetricLabels) -> Self {
            Self
        }
    }

    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn start() -> Self {
            Self
        }
    }

    impl Limit {
        pub(crate) fn new(_: &MetricLabels) -> Self {
            Self(())
        }

        pub(crate) fn decided(&self, _: &Decision, _: &MetricLabels, _: Place, _: Option<&Timer>, _: bool) {}
    }

    pub(crate) fn rejected(_: &'static str, _: &MetricLabels, _: Place) {}

    pub(crate) fn failed(_: &Error) {}

    pub(crate) fn waiting(_: f64) {}
}
