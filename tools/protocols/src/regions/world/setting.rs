//! The setting: the rules, the size of a world, and how often things happen in it.
//! The settings that are explored are in `rows.rs` and `mistakes.rs`.

use crate::regions::protocol::{Durability, Mistake, Rules, Time, Units};

/// Says how large a world is, and what may happen in it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The rules, with or without a mistake.
    pub rules: Rules,
    /// The number of processes in each region.
    pub processes: usize,
    /// The last tick.
    pub last: Time,
    /// The most times that each thing happens.
    pub budget: Budget,
    /// The most by which the clock of a server that takes over differs from that before it.
    pub skew: Time,
    /// Lets a server that was replaced live on, cut off from the new one.
    pub old_lives: bool,
}

/// Says how often things may still happen.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Budget {
    /// A call to the home begins.
    pub calls: u8,
    /// A call or its answer is lost.
    pub losses: u8,
    /// A process leases from its purse.
    pub leases: u8,
    /// A message arrives, and once more later.
    pub repeats: u8,
    /// The copy of a region's server takes over.
    pub region_failures: u8,
    /// The copy of the home takes over.
    pub home_failures: u8,
    /// The clock of a region's server steps by a tick.
    pub clock_steps: u8,
    /// A process ends with all it holds.
    pub crashes: u8,
    /// A call returns the free units of its purse.
    pub returns: u8,
}

impl Budget {
    /// Nothing happens.
    pub const NONE: Self = Self {
        calls: 0,
        losses: 0,
        leases: 0,
        repeats: 0,
        region_failures: 0,
        home_failures: 0,
        clock_steps: 0,
        crashes: 0,
        returns: 0,
    };
}

impl Setting {
    /// One process in each region, one unit in a period of two generations, and nothing happens.
    pub const ONE_UNIT: Self = Self {
        rules: Rules {
            quota: 1,
            want: 1,
            generation: 1,
            period: 2,
            durability: Durability::Trust,
            mistake: None,
        },
        processes: 1,
        last: 0,
        budget: Budget::NONE,
        skew: 0,
        old_lives: false,
    };

    /// Sets the units of a period, and those for which a region asks at once.
    #[must_use]
    pub const fn units(mut self, quota: Units, want: Units) -> Self {
        (self.rules.quota, self.rules.want) = (quota, want);
        self
    }

    /// Sets the lengths of a generation and of a period.
    #[must_use]
    pub const fn times(mut self, generation: Time, period: Time) -> Self {
        (self.rules.generation, self.rules.period) = (generation, period);
        self
    }

    /// Sets the guard against a home that loses grants.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.rules.durability = durability;
        self
    }

    /// Sets the mistake in the rules.
    #[must_use]
    pub const fn mistake(mut self, mistake: Mistake) -> Self {
        self.rules.mistake = Some(mistake);
        self
    }

    /// Sets the number of processes in each region.
    #[must_use]
    pub const fn processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }

    /// Sets the last tick.
    #[must_use]
    pub const fn last(mut self, last: Time) -> Self {
        self.last = last;
        self
    }

    /// Sets the most by which the clock of the next server differs.
    #[must_use]
    pub const fn skew(mut self, skew: Time) -> Self {
        self.skew = skew;
        self
    }

    /// Lets servers that were replaced live on.
    #[must_use]
    pub const fn old_lives(mut self) -> Self {
        self.old_lives = true;
        self
    }

    /// Sets how many calls begin.
    #[must_use]
    pub const fn calls(mut self, calls: u8) -> Self {
        self.budget.calls = calls;
        self
    }

    /// Sets how many messages are lost.
    #[must_use]
    pub const fn losses(mut self, losses: u8) -> Self {
        self.budget.losses = losses;
        self
    }

    /// Sets how often a process leases.
    #[must_use]
    pub const fn leases(mut self, leases: u8) -> Self {
        self.budget.leases = leases;
        self
    }

    /// Sets how many messages arrive twice.
    #[must_use]
    pub const fn repeats(mut self, repeats: u8) -> Self {
        self.budget.repeats = repeats;
        self
    }

    /// Sets how often the copy of a region takes over.
    #[must_use]
    pub const fn region_failures(mut self, region_failures: u8) -> Self {
        self.budget.region_failures = region_failures;
        self
    }

    /// Sets how often the copy of the home takes over.
    #[must_use]
    pub const fn home_failures(mut self, home_failures: u8) -> Self {
        self.budget.home_failures = home_failures;
        self
    }

    /// Sets how often the clock of a region steps.
    #[must_use]
    pub const fn clock_steps(mut self, clock_steps: u8) -> Self {
        self.budget.clock_steps = clock_steps;
        self
    }

    /// Sets how many processes end.
    #[must_use]
    pub const fn crashes(mut self, crashes: u8) -> Self {
        self.budget.crashes = crashes;
        self
    }

    /// Sets how many calls return free units.
    #[must_use]
    pub const fn returns(mut self, returns: u8) -> Self {
        self.budget.returns = returns;
        self
    }

    /// Returns whether a grant counts only when the copies of the home have it.
    pub(super) fn waits(&self) -> bool {
        self.rules.durability == Durability::Replicas && !self.rules.has(Mistake::GrantBeforeCopy)
    }

    /// Returns whether a home that was replaced may live on. `Drain` is for one server alone.
    pub(super) fn old_home_lives(&self) -> bool {
        let is_alone = self.rules.durability == Durability::Drain
            && !self.rules.has(Mistake::DrainWithOldHome);
        self.old_lives && !is_alone
    }
}
