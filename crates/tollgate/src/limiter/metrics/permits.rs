use std::{fmt, sync::OnceLock};

use metrics::{Counter, Gauge, Label, Unit, counter, describe_counter, describe_gauge, gauge};

const PERMITS: &str = "tollgate_permits_total";
const LOST: &str = "tollgate_permits_lost_total";
const HELD: &str = "tollgate_permits_held";
const WAITING: &str = "tollgate_permits_waiting";

/// Stores the series of one concurrency limit. They are registered with its first acquire.
pub(crate) struct PermitMetrics {
    name: Box<str>,
    series: OnceLock<Series>,
}

struct Series {
    acquired: Counter,
    denied: Counter,
    failed: Counter,
    lost: Counter,
    held: Gauge,
    waiting: Gauge,
}

impl PermitMetrics {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), series: OnceLock::new() }
    }

    pub(crate) fn acquired(&self) {
        self.series().acquired.increment(1);
        self.series().held.increment(1.0);
    }

    pub(crate) fn released(&self) {
        self.series().held.decrement(1.0);
    }

    pub(crate) fn denied(&self) {
        self.series().denied.increment(1);
    }

    pub(crate) fn failed(&self) {
        self.series().failed.increment(1);
    }

    pub(crate) fn lost(&self) {
        self.series().lost.increment(1);
    }

    pub(crate) fn waits(&self) {
        self.series().waiting.increment(1.0);
    }

    pub(crate) fn waited(&self) {
        self.series().waiting.decrement(1.0);
    }

    fn series(&self) -> &Series {
        self.series.get_or_init(|| {
            describe_counter!(PERMITS, Unit::Count, "Acquires of permits by outcome: acquired, denied or failed.");
            describe_counter!(LOST, Unit::Count, "Permits that could not be renewed and were lost.");
            describe_gauge!(HELD, Unit::Count, "Permits that are held in this process.");
            describe_gauge!(WAITING, Unit::Count, "Callers that wait for a permit in this process.");
            let policy = || Label::new("policy", self.name.to_string());
            let outcome =
                |outcome: &'static str| counter!(PERMITS, [policy(), Label::new("outcome", outcome)].to_vec());
            Series {
                acquired: outcome("acquired"),
                denied: outcome("denied"),
                failed: outcome("failed"),
                lost: counter!(LOST, [policy()].to_vec()),
                held: gauge!(HELD, [policy()].to_vec()),
                waiting: gauge!(WAITING, [policy()].to_vec()),
            }
        })
    }
}

impl fmt::Debug for PermitMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitMetrics").finish_non_exhaustive()
    }
}
