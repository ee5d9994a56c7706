//! The series of limiters, tenants and permits, with the feature `metrics`.
//! Without it `off.rs` stands in this file's place. When something is counted is decided by the
//! callers.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};
use tollgate_model::raw::{DecisionParts, ErrorKindParts};

use crate::{
    Cost, Decision, Error, ErrorKind, PolicySet,
    lock::Lock,
    runtime,
    store::{Deadline, Settlement},
};

const CHECKS: &str = "tollgate_checks_total";
const DENIALS: &str = "tollgate_denials_total";
const DEGRADED: &str = "tollgate_degraded_total";
const ERRORS: &str = "tollgate_errors_total";
const DURATION: &str = "tollgate_check_duration_seconds";
const OUTAGES: &str = "tollgate_outages_total";
const OUTAGE: &str = "tollgate_outage";
const COMMITS: &str = "tollgate_commits_total";
const EXCEPTIONS: &str = "tollgate_exceptions_used_total";
const CALLERS: &str = "tollgate_waiting";

/// Changes the number of callers that wait, in all limiters together. It is described with the
/// first series of a limiter.
pub(super) fn add_waiting(change: f64) {
    gauge!(CALLERS).increment(change);
}

/// Stores the series of one limiter. They are registered with its first check, so that later checks
/// need no look-up.
#[derive(Default)]
pub(crate) struct LimiterMetrics {
    checks: OnceLock<CheckSeries>,
    /// Only for a store that is not in the process.
    remote: OnceLock<RemoteSeries>,
    errors: KindCounters,
    commits: CommitSeries,
    /// Is set when the counter of exceptions is described.
    exceptions: OnceLock<()>,
}

/// Stores one counter for each outcome of a commit, registered with the first such commit.
#[derive(Default)]
struct CommitSeries {
    settled: OnceLock<Counter>,
    already_settled: OnceLock<Counter>,
    lapsed: OnceLock<Counter>,
    failed: OnceLock<Counter>,
}

struct CheckSeries {
    allowed: Counter,
    denied: Counter,
    failed: Counter,
    /// For each policy of the first check, in the order of the set.
    denials: Box<[DenialCounter]>,
    /// For policies of other names, in the order of their first denial.
    others: Lock<Vec<DenialCounter>>,
}

struct DenialCounter {
    policy: Box<str>,
    counter: Counter,
}

/// Bounds the names of policies that become label values of one limiter, whose tenants may bring
/// many. Denials by policies of further names are counted as `other`.
const MAX_NAMES: usize = 64;

const OTHER: &str = "other";

struct RemoteSeries {
    duration: Histogram,
    outages: Counter,
    outage: OutageGauge,
    degraded: KindCounters,
}

/// Is 1 in an outage and 0 otherwise, also once the limiter is gone.
struct OutageGauge {
    gauge: Gauge,
    is_away: AtomicBool,
}

impl OutageGauge {
    fn new(gauge: Gauge) -> Self {
        Self {
            gauge,
            is_away: AtomicBool::new(false),
        }
    }

    fn set(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
        self.gauge.set(f64::from(u8::from(is_away)));
    }
}

impl Drop for OutageGauge {
    /// Ends the outage that the limiter was in. Another limiter of the name may be in one of its
    /// own otherwise.
    fn drop(&mut self) {
        if *self.is_away.get_mut() {
            self.set(false);
        }
    }
}

/// Stores one counter for each kind of error, registered with the first such error.
struct KindCounters(Box<[OnceLock<Counter>]>);

impl LimiterMetrics {
    pub(crate) const IS_ON: bool = true;

    /// Counts a decision, and measures the time since `deadline` was set. A peek is not counted,
    /// and a decision without a call of the store is not measured. A store in the process has no
    /// deadline.
    pub(crate) fn record_decision(
        &self,
        name: &str,
        decision: &Decision,
        deadline: Option<Deadline>,
    ) {
        if decision.cost() == Cost::ZERO {
            return;
        }
        self.checks(name, decision.policies())
            .record(name, decision);
        let Some(deadline) = deadline else {
            return;
        };
        let remote = self.remote(name);
        if !decision.is_in_process() {
            remote.duration.record(runtime::now() - deadline.start());
        }
        if let Some(kind) = decision.degraded() {
            remote.degraded.increment(kind, DEGRADED, name);
        }
    }

    pub(crate) fn record_error(&self, name: &str, policies: &PolicySet, error: &Error) {
        self.checks(name, policies).failed.increment(1);
        self.errors.increment(error.kind(), ERRORS, name);
    }

    /// Counts a commit. `None` is a commit that failed.
    pub(crate) fn record_commit(&self, name: &str, settlement: Option<Settlement>) {
        let counter = match settlement {
            Some(Settlement::Settled) => &self.commits.settled,
            Some(Settlement::AlreadySettled) => &self.commits.already_settled,
            Some(Settlement::Lapsed) => &self.commits.lapsed,
            None => &self.commits.failed,
        };
        let register = || {
            describe_counter!(
                COMMITS,
                Unit::Count,
                "Commits of reservations, by limiter and outcome."
            );
            let outcome = settlement.map_or("failed", Settlement::as_str);
            counter!(
                COMMITS,
                [limiter(name), Label::new("outcome", outcome)].to_vec()
            )
        };
        counter.get_or_init(register).increment(1);
    }

    /// Counts a decision by an exception. They are few, and so are looked up each time.
    pub(crate) fn record_exception(&self, name: &str, policy: &str) {
        self.exceptions.get_or_init(|| {
            describe_counter!(
                EXCEPTIONS,
                Unit::Count,
                "Decisions by the quota of an exception, by limiter and policy."
            );
        });
        let labels = [limiter(name), Label::new("policy", policy.to_owned())];
        counter!(EXCEPTIONS, labels.to_vec()).increment(1);
    }

    pub(crate) fn outage_began(&self, name: &str) {
        let remote = self.remote(name);
        remote.outages.increment(1);
        remote.outage.set(true);
    }

    pub(crate) fn outage_ended(&self, name: &str) {
        self.remote(name).outage.set(false);
    }

    #[inline]
    fn checks(&self, name: &str, policies: &PolicySet) -> &CheckSeries {
        self.checks.get_or_init(|| CheckSeries::new(name, policies))
    }

    fn remote(&self, name: &str) -> &RemoteSeries {
        self.remote.get_or_init(|| RemoteSeries::new(name))
    }
}

impl CheckSeries {
    fn new(name: &str, policies: &PolicySet) -> Self {
        describe_counter!(
            CHECKS,
            Unit::Count,
            "Checks by limiter and outcome: allowed, denied or failed."
        );
        describe_gauge!(
            CALLERS,
            Unit::Count,
            "Callers that wait for units, or for their turn in a queue."
        );
        describe_counter!(
            DENIALS,
            Unit::Count,
            "Denied checks by limiter and by each policy that denied."
        );
        describe_counter!(
            ERRORS,
            Unit::Count,
            "Checks without a decision, by limiter and reason."
        );
        let outcome = |outcome: &'static str| {
            counter!(
                CHECKS,
                [limiter(name), Label::new("outcome", outcome)].to_vec()
            )
        };
        Self {
            allowed: outcome("allowed"),
            denied: outcome("denied"),
            failed: outcome("failed"),
            denials: policies
                .iter()
                .map(|policy| DenialCounter::new(name, policy.name()))
                .collect(),
            others: Lock::default(),
        }
    }

    #[inline]
    fn record(&self, name: &str, decision: &Decision) {
        if decision.is_allowed() {
            return self.allowed.increment(1);
        }
        self.denied.increment(1);
        for (at, state) in decision.states().enumerate() {
            if state.is_exceeded() {
                let policy = state.policy().name();
                match self
                    .denials
                    .get(at)
                    .filter(|denials| *denials.policy == *policy)
                {
                    Some(denials) => denials.counter.increment(1),
                    None => self.record_other(name, policy),
                }
            }
        }
    }

    /// Counts a denial by a policy that the first check did not have: limiters may differ in their
    /// policies alone.
    #[cold]
    fn record_other(&self, name: &str, policy: &str) {
        let mut others = self.others.lock();
        if let Some(denials) = self
            .denials
            .iter()
            .chain(&*others)
            .find(|denials| *denials.policy == *policy)
        {
            return denials.counter.increment(1);
        }
        let policy = if self.denials.len() + others.len() < MAX_NAMES {
            policy
        } else {
            OTHER
        };
        let denials = DenialCounter::new(name, policy);
        denials.counter.increment(1);
        if policy != OTHER {
            others.push(denials);
        }
    }
}

impl DenialCounter {
    fn new(name: &str, policy: &str) -> Self {
        let labels = [limiter(name), Label::new("policy", policy.to_owned())];
        Self {
            policy: policy.into(),
            counter: counter!(DENIALS, labels.to_vec()),
        }
    }
}

impl RemoteSeries {
    fn new(name: &str) -> Self {
        describe_histogram!(
            DURATION,
            Unit::Seconds,
            "Time from the start of a check to its decision, by limiter."
        );
        describe_counter!(
            DEGRADED,
            Unit::Count,
            "Decisions without the store, by limiter and reason."
        );
        describe_counter!(
            OUTAGES,
            Unit::Count,
            "Outages of the store that began, by limiter."
        );
        describe_gauge!(
            OUTAGE,
            Unit::Count,
            "1 while the limiter decides without its store, 0 otherwise."
        );
        let label = || [limiter(name)].to_vec();
        Self {
            duration: histogram!(DURATION, label()),
            outages: counter!(OUTAGES, label()),
            outage: OutageGauge::new(gauge!(OUTAGE, label())),
            degraded: KindCounters::default(),
        }
    }
}

impl KindCounters {
    fn increment(&self, kind: ErrorKind, metric: &'static str, name: &str) {
        let register = || {
            counter!(
                metric,
                [
                    limiter(name),
                    Label::from_static_parts("reason", kind.as_str())
                ]
                .to_vec()
            )
        };
        if let Some(counter) = self.0.get(usize::from(kind.code())) {
            counter.get_or_init(register).increment(1);
        }
    }
}

impl Default for KindCounters {
    fn default() -> Self {
        // Codes count from 1.
        Self(
            (0..=ErrorKind::ALL.len())
                .map(|_| OnceLock::new())
                .collect(),
        )
    }
}

fn limiter(name: &str) -> Label {
    Label::new("limiter", name.to_owned())
}

const FETCHES: &str = "tollgate_tenant_fetches_total";
const TENANT_OUTAGE: &str = "tollgate_tenant_outage";
const CACHED: &str = "tollgate_tenants_cached";

/// Stores the series of the limits of tenants. They are registered with the first fetch.
#[derive(Default)]
pub(crate) struct TenantMetrics(OnceLock<TenantSeries>);

struct TenantSeries {
    succeeded: Counter,
    failed: Counter,
    outage: OutageGauge,
    cached: Gauge,
}

impl TenantMetrics {
    /// Counts a fetch. `name` is the name of the default limiter.
    pub(crate) fn record_fetch(&self, name: &str, has_succeeded: bool) {
        let series = self.series(name);
        if has_succeeded {
            &series.succeeded
        } else {
            &series.failed
        }
        .increment(1);
    }

    pub(crate) fn record_cached(&self, name: &str, cached: usize) {
        self.series(name).cached.set(cached as f64);
    }

    pub(crate) fn outage_began(&self, name: &str) {
        self.series(name).outage.set(true);
    }

    pub(crate) fn outage_ended(&self, name: &str) {
        self.series(name).outage.set(false);
    }

    fn series(&self, name: &str) -> &TenantSeries {
        self.0.get_or_init(|| TenantSeries::new(name))
    }
}

impl TenantSeries {
    fn new(name: &str) -> Self {
        describe_counter!(
            FETCHES,
            Unit::Count,
            "Fetches of the limits of tenants, by limiter and outcome."
        );
        describe_gauge!(
            TENANT_OUTAGE,
            Unit::Count,
            "1 while the limits of tenants cannot be fetched, 0 otherwise."
        );
        describe_gauge!(
            CACHED,
            Unit::Count,
            "Tenants in the cache, as of the last fetch."
        );
        let limiter = || Label::new("limiter", name.to_owned());
        let fetches = |outcome: &'static str| {
            counter!(
                FETCHES,
                [limiter(), Label::new("outcome", outcome)].to_vec()
            )
        };
        Self {
            succeeded: fetches("succeeded"),
            failed: fetches("failed"),
            outage: OutageGauge::new(gauge!(TENANT_OUTAGE, [limiter()].to_vec())),
            cached: gauge!(CACHED, [limiter()].to_vec()),
        }
    }
}

const PERMITS: &str = "tollgate_permits_total";
const LOST: &str = "tollgate_permits_lost_total";
const HELD: &str = "tollgate_permits_held";
const WAITING: &str = "tollgate_permits_waiting";

/// Stores the series of one concurrency limit. They are registered with its first acquire.
pub(crate) struct PermitMetrics {
    name: Box<str>,
    series: OnceLock<PermitSeries>,
}

struct PermitSeries {
    acquired: Counter,
    denied: Counter,
    failed: Counter,
    lost: Counter,
    held: Gauge,
    waiting: Gauge,
}

impl PermitMetrics {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            series: OnceLock::new(),
        }
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

    fn series(&self) -> &PermitSeries {
        self.series.get_or_init(|| {
            describe_counter!(
                PERMITS,
                Unit::Count,
                "Acquires of permits by outcome: acquired, denied or failed."
            );
            describe_counter!(
                LOST,
                Unit::Count,
                "Permits that could not be renewed and were lost."
            );
            describe_gauge!(HELD, Unit::Count, "Permits that are held in this process.");
            describe_gauge!(
                WAITING,
                Unit::Count,
                "Callers that wait for a permit in this process."
            );
            let policy = || Label::new("policy", self.name.to_string());
            let outcome = |outcome: &'static str| {
                counter!(PERMITS, [policy(), Label::new("outcome", outcome)].to_vec())
            };
            PermitSeries {
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
