//! The setting: a leased policy, and how often things happen.
//! The settings that are explored are in `rows.rs` and `mistakes.rs`.

use std::time::Duration;

use tollgate::{Algorithm, Lease, Policy, PolicySet, Quota};

/// The length of a tick in microseconds: half of a generation.
pub(super) const TICK_US: u64 = 50_000;

/// The time at which the server begins: the start of a generation, and of a window.
pub(super) const BEGIN_US: u64 = 1_680_000_000_000_000;

/// Says what is leased, and what may happen.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The one leased policy.
    pub(super) policies: PolicySet,
    /// The number of processes.
    pub(super) processes: usize,
    /// The calls that a process has under way at a time.
    pub(super) under_way: usize,
    /// The units for which a call asks.
    pub(super) want: u64,
    /// The last tick.
    pub(super) last: u64,
    pub(super) budget: Budget,
    /// The line of the rules that is wrong.
    pub(super) mistake: Option<Mistake>,
}

/// Says how often things may still happen.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub struct Budget {
    /// A process makes a call: a check that no held unit covers.
    pub calls: u8,
    /// A process returns its units, because nobody asks for the key.
    pub returns: u8,
    /// A call or its answer is lost.
    pub losses: u8,
    /// A process ends with all it holds.
    pub crashes: u8,
    /// The server loses the state.
    pub lost_states: u8,
    /// A server takes over that has an older copy of the state.
    pub failures: u8,
    /// The clock of the server goes back, or jumps forward.
    pub clock_steps: u8,
}

/// A line of the rules that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A report stays with the process when it is sent, and is sent again.
    ReportStays,
    /// A call whose answer is lost is sent again, with the same reports.
    CallTwice,
    /// A grant lives from its answer on, and not from the sending of its call.
    LifeFromAnswer,
    /// A grant lives for one more generation.
    LongerLife,
    /// A process spends what it holds after it has lapsed.
    KeptUnits,
    /// Units that lapse are not charged.
    LapseIsFree,
    /// Units that lapse stay outstanding: the generation is not raised.
    NothingLapses,
    /// Reported units are not charged.
    ReportIsFree,
    /// Granted units are not outstanding.
    GrantIsFree,
    /// A report counts although its generation has lapsed.
    AnyGeneration,
    /// A report counts although its state was lost.
    AnyBirth,
    /// Units that are returned are free again, and stay with the process.
    ReturnKeeps,
}

impl Setting {
    /// Leases sixteen units, of which eight may be outstanding, to one process that does nothing.
    ///
    /// The units of a fixed window are those of four generations. In a bucket, one accrues in each.
    pub(super) fn new(algorithm: Algorithm) -> Self {
        let lease = Lease::new().generation(Duration::from_micros(2 * TICK_US));
        let period = Duration::from_micros(match algorithm {
            Algorithm::FixedWindow => 8 * TICK_US,
            _ => 32 * TICK_US,
        });
        let policy = Policy::try_new("leased", algorithm, Quota::new(16, period))
            .and_then(|policy| policy.try_leased(lease.share(2)))
            .expect("a policy that can be leased");
        Self {
            policies: policy.into(),
            processes: 1,
            under_way: 1,
            want: 2,
            last: 0,
            budget: Budget::default(),
            mistake: None,
        }
    }

    /// Changes how often things may happen.
    pub(super) fn budget(mut self, change: impl FnOnce(&mut Budget)) -> Self {
        change(&mut self.budget);
        self
    }

    /// Sets the number of processes, and of calls that each has under way.
    pub(super) fn processes(mut self, processes: usize, under_way: usize) -> Self {
        (self.processes, self.under_way) = (processes, under_way);
        self
    }

    /// Sets the last tick.
    pub(super) fn last(mut self, last: u64) -> Self {
        self.last = last;
        self
    }

    /// Sets the mistake in the rules.
    pub(super) fn mistake(mut self, mistake: Mistake) -> Self {
        self.mistake = Some(mistake);
        self
    }

    /// Returns the leased policy.
    pub(super) fn policy(&self) -> &Policy {
        self.policies.iter().next().expect("one policy")
    }

    /// Returns the terms of the policy.
    pub(super) fn lease(&self) -> Lease {
        self.policy().lease().expect("it is leased")
    }

    /// Returns whether this line is wrong.
    pub(super) fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}
