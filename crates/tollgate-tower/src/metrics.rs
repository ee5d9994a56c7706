//! Counts through the `metrics` facade, behind the feature of that name. Labels are what was
//! configured, never what a client sent.

#[cfg(not(feature = "metrics"))]
pub(crate) use off::{Limit, Timer, failed, rejected, waiting};
#[cfg(feature = "metrics")]
pub(crate) use on::{Limit, Timer, failed, rejected, waiting};

#[cfg(feature = "metrics")]
mod on {
    use std::{sync::OnceLock, time::Instant};

    use metrics::{Counter, Histogram, counter, gauge, histogram};
    use tollgate::{Decision, Error, PolicySet};

    /// The series of one limiter. They are registered with its first decision, so that they do not
    /// cost a look-up for each.
    #[derive(Default)]
    pub(crate) struct Limit(OnceLock<Series>);

    struct Series {
        duration: Histogram,
        policies: Vec<Policy>,
    }

    struct Policy {
        allowed: Counter,
        denied: Counter,
        shadowed: Counter,
    }

    /// When a check began.
    pub(crate) struct Timer(Instant);

    impl Timer {
        pub(crate) fn start() -> Self {
            Self(Instant::now())
        }
    }

    impl Limit {
        pub(crate) fn decided(&self, timer: &Timer, decision: &Decision, is_shadow: bool) {
            let series = self.0.get_or_init(|| Series::new(decision.policies()));
            series.duration.record(timer.0.elapsed());
            for (state, policy) in decision.states().zip(&series.policies) {
                if decision.is_allowed() {
                    policy.allowed.increment(1);
                } else if state.is_exceeded() {
                    if is_shadow { &policy.shadowed } else { &policy.denied }.increment(1);
                }
            }
            if let Some(reason) = decision.degraded_reason() {
                counter!("tollgate_degraded_total", "reason" => reason).increment(1);
            }
        }
    }

    impl Series {
        fn new(policies: &PolicySet) -> Self {
            let counter = |policy: &tollgate::Policy, outcome: &'static str| counter!("tollgate_decisions_total", "policy" => policy.name().to_owned(), "outcome" => outcome);
            Self {
                duration: histogram!("tollgate_check_duration_seconds"),
                policies: policies
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

    pub(crate) fn rejected(reason: &'static str) {
        counter!("tollgate_rejections_total", "reason" => reason).increment(1);
    }

    pub(crate) fn failed(error: &Error) {
        counter!("tollgate_errors_total", "reason" => error.reason()).increment(1);
    }

    pub(crate) fn waiting(change: f64) {
        gauge!("tollgate_waiting").increment(change);
    }
}

#[cfg(not(feature = "metrics"))]
mod off {
    use tollgate::{Decision, Error};

    #[derive(Default)]
    pub(crate) struct Limit(());

    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn start() -> Self {
            Self
        }
    }

    impl Limit {
        pub(crate) fn decided(&self, _: &Timer, _: &Decision, _: bool) {}
    }

    pub(crate) fn rejected(_: &'static str) {}

    pub(crate) fn failed(_: &Error) {}

    pub(crate) fn waiting(_: f64) {}
}
