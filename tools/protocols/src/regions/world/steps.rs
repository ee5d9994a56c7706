//! Lists the steps, and those of them that a state allows.
//! What they change is in `after.rs`, which also refuses those that are not possible after all.

use super::{Message, REGIONS, Setting, World};
use crate::regions::protocol::Time;

/// Selects a server: the one that leads, or the one that it has replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The server that leads.
    Leader,
    /// The server that was replaced and lives on.
    Old,
}

/// One thing that happens. Processes and regions have numbers, and `at` selects one of two servers.
#[expect(missing_docs, reason = "the names of the fields say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time goes on.
    Tick,
    /// A process begins a call.
    Claim {
        process: usize,
        at: At,
        gives_back: bool,
    },
    /// A call arrives at the home. With `again`, it arrives once more later.
    Call { process: usize, at: At, again: bool },
    /// A grant arrives at the purse. With `again`, it arrives once more later.
    Deposit { process: usize, at: At, again: bool },
    /// A message of a process is lost.
    Lose { process: usize },
    /// A process leases a unit.
    Lease { process: usize, at: At },
    /// A process ends its lease, or with `goes_on` reports what it has spent of it.
    Report {
        process: usize,
        at: At,
        goes_on: bool,
    },
    /// Such a report of a process is lost.
    LoseReport { process: usize, goes_on: bool },
    /// A process admits a request by its lease.
    Spend { process: usize },
    /// A purse admits a request.
    Check { region: usize, at: At },
    /// A process ends with all it holds.
    Crash { process: usize },
    /// The copy of a purse catches up.
    Copy { region: usize },
    /// The copy of a purse takes over. Its clock differs by `clock`.
    FailOver {
        region: usize,
        old_lives: bool,
        clock: Time,
    },
    /// A server that was replaced ends.
    EndOld { region: usize },
    /// The clock of a region's server steps.
    StepClock { region: usize, by: Time },
    /// The copy of the home catches up, and grants count.
    CopyHome,
    /// The copy of the home takes over.
    FailOverHome { old_lives: bool, clock: Time },
    /// A home that was replaced ends.
    EndOldHome,
}

impl Step {
    /// Lets random walks spend more often than they break something.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Call { again: true, .. }
            | Self::Crash { .. }
            | Self::Deposit { again: true, .. }
            | Self::EndOld { .. }
            | Self::EndOldHome
            | Self::FailOver { .. }
            | Self::FailOverHome { .. }
            | Self::Lose { .. }
            | Self::StepClock { .. }
            | Self::Tick => 2,
            Self::Claim { .. }
            | Self::Lease { .. }
            | Self::LoseReport { .. }
            | Self::Report { .. } => 4,
            Self::Copy { .. } => 6,
            Self::Call { .. }
            | Self::Check { .. }
            | Self::CopyHome
            | Self::Deposit { .. }
            | Self::Spend { .. } => 12,
        }
    }
}

impl World {
    /// Lists what may happen.
    pub(super) fn steps(&self, setting: &Setting, steps: &mut Vec<Step>) {
        if self.now < setting.last {
            steps.push(Step::Tick);
        }
        for process in 0..self.processes.len() {
            self.steps_of_process(setting, process, steps);
        }
        for region in 0..REGIONS {
            self.steps_of_region(setting, region, steps);
        }
        self.steps_of_home(setting, steps);
    }

    fn steps_of_process(&self, setting: &Setting, process: usize, steps: &mut Vec<Step>) {
        let (of, left) = (&self.processes[process], &self.left);
        let purses = sides(self.regions[process / setting.processes].old.is_some());
        let homes = sides(self.old_home.is_some());
        let once_or_again = if left.repeats > 0 {
            &[false, true][..]
        } else {
            &[false]
        };
        match &of.message {
            Message::None if left.calls > 0 => {
                let keeps_or_gives = if left.returns > 0 {
                    &[false, true][..]
                } else {
                    &[false]
                };
                steps.extend(
                    pairs(purses, keeps_or_gives).map(|(at, gives_back)| Step::Claim {
                        process,
                        at,
                        gives_back,
                    }),
                );
            }
            Message::Call(_) => {
                let calls = pairs(homes, once_or_again);
                steps.extend(calls.map(|(at, again)| Step::Call { process, at, again }));
            }
            Message::Granted { counts: true, .. } => {
                let deposits = pairs(purses, once_or_again);
                steps.extend(deposits.map(|(at, again)| Step::Deposit { process, at, again }));
            }
            Message::None | Message::Granted { .. } => {}
        }
        if of.message != Message::None && left.losses > 0 {
            steps.push(Step::Lose { process });
        }
        match &of.pot {
            None if left.leases > 0 => {
                steps.extend(purses.iter().map(|&at| Step::Lease { process, at }));
            }
            None => {}
            Some(pot) => {
                if pot.units > 0 {
                    steps.push(Step::Spend { process });
                }
                let ends_or_goes_on = if pot.spent > 0 && pot.units > 0 {
                    &[false, true][..]
                } else {
                    &[false]
                };
                let reports = pairs(purses, ends_or_goes_on);
                steps.extend(reports.map(|(at, goes_on)| Step::Report {
                    process,
                    at,
                    goes_on,
                }));
                if left.losses > 0 {
                    let lose = |&goes_on| Step::LoseReport { process, goes_on };
                    steps.extend(ends_or_goes_on.iter().map(lose));
                }
            }
        }
        if left.crashes > 0 {
            steps.push(Step::Crash { process });
        }
    }

    fn steps_of_region(&self, setting: &Setting, region: usize, steps: &mut Vec<Step>) {
        let has_old = self.regions[region].old.is_some();
        steps.extend(sides(has_old).iter().map(|&at| Step::Check { region, at }));
        if has_old {
            steps.push(Step::EndOld { region });
        }
        if self.left.region_failures > 0 {
            steps.push(Step::Copy { region });
            let fail = |(old_lives, clock)| Step::FailOver {
                region,
                old_lives,
                clock,
            };
            steps.extend(failures(setting, setting.old_lives).map(fail));
        }
        if self.left.clock_steps > 0 {
            steps.extend([-1, 1].map(|by| Step::StepClock { region, by }));
        }
    }

    fn steps_of_home(&self, setting: &Setting, steps: &mut Vec<Step>) {
        if self.old_home.is_some() {
            steps.push(Step::EndOldHome);
        }
        if self.left.home_failures > 0 || setting.waits() {
            steps.push(Step::CopyHome);
        }
        if self.left.home_failures > 0 {
            let fail = |(old_lives, clock)| Step::FailOverHome { old_lives, clock };
            steps.extend(failures(setting, setting.old_home_lives()).map(fail));
        }
    }
}

fn sides(has_old: bool) -> &'static [At] {
    if has_old {
        &[At::Leader, At::Old]
    } else {
        &[At::Leader]
    }
}

fn pairs<'a, A: Copy, B: Copy>(these: &'a [A], those: &'a [B]) -> impl Iterator<Item = (A, B)> {
    these
        .iter()
        .flat_map(move |&this| those.iter().map(move |&that| (this, that)))
}

/// Lists how a server may be replaced: whether it lives on, and how the clock of the other differs.
fn failures(setting: &Setting, may_live: bool) -> impl Iterator<Item = (bool, Time)> {
    let skew = setting.skew;
    let clocks = [0, -skew, skew]
        .into_iter()
        .take(if skew > 0 { 3 } else { 1 });
    clocks.flat_map(move |clock| {
        let lives = if may_live {
            &[false, true][..]
        } else {
            &[false]
        };
        lives.iter().map(move |&lives| (lives, clock))
    })
}
