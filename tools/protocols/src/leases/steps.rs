//! The steps that may happen, and what each changes.
//! See `server.rs` for how the server decides.

use tollgate_test_support::calls::Call;

use super::{
    bound::Bound,
    invariants,
    setting::{Mistake, Setting},
    world::{Process, Sent, World, at_us},
};
use crate::explorer::{Invariant, Protocol};

/// One thing that happens. Processes and their messages have numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the fields say it")]
pub enum Step {
    /// Time goes on.
    Tick,
    /// A process makes a call for a check, which carries its reports.
    Call { process: usize },
    /// A process makes a call that returns its units.
    Return { process: usize },
    /// A call arrives. With `again`, the call is sent once more, because its answer is lost.
    Serve {
        process: usize,
        call: usize,
        again: bool,
    },
    /// An answer arrives.
    Receive { process: usize, grant: usize },
    /// A call is lost.
    LoseCall { process: usize, call: usize },
    /// An answer is lost.
    LoseAnswer { process: usize, grant: usize },
    /// A process admits a request by a held unit.
    Spend { process: usize },
    /// A process ends with all it holds. Its calls may be on their way.
    Crash { process: usize },
    /// The server loses the state.
    LoseState,
    /// The copy of the state catches up.
    Copy,
    /// The server that has the copy takes over.
    FailOver,
    /// The clock of the server steps by ticks.
    StepClock { by: i64 },
}

/// Takes one of what may happen so often.
fn one_of(left: &mut u8) -> Option<()> {
    *left = left.checked_sub(1)?;
    Some(())
}

impl Protocol for Setting {
    type State = World;
    type Step = Step;

    fn begin(&self) -> World {
        World::new(self)
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        let left = &world.left;
        if world.tick < self.last {
            steps.push(Step::Tick);
        }
        for (process, of) in world.processes.iter().enumerate() {
            if of.calls.len() + of.grants.len() < self.under_way {
                steps.extend([Step::Call { process }, Step::Return { process }]);
            }
            for call in 0..of.calls.len() {
                let serve = |again| Step::Serve {
                    process,
                    call,
                    again,
                };
                steps.extend([serve(false), Step::LoseCall { process, call }]);
                if self.has(Mistake::CallTwice) {
                    steps.push(serve(true));
                }
            }
            for grant in 0..of.grants.len() {
                steps.push(Step::Receive { process, grant });
                steps.push(Step::LoseAnswer { process, grant });
            }
            steps.extend([Step::Spend { process }, Step::Crash { process }]);
        }
        if left.lost_states > 0 {
            steps.push(Step::LoseState);
        }
        if left.failures > 0 {
            steps.extend([Step::Copy, Step::FailOver]);
        }
        if left.clock_steps > 0 {
            steps.extend([-4, -2, -1, 1, 2, 4].map(|by| Step::StepClock { by }));
        }
    }

    fn after(&self, world: &World, step: &Step) -> Option<World> {
        let mut after = world.clone();
        after.take(self, *step)?;
        after.order();
        Some(after)
    }

    fn weight(&self, step: &Step) -> u64 {
        match step {
            Step::Spend { .. } | Step::Serve { .. } | Step::Receive { .. } | Step::Call { .. } => 6,
            _ => 1,
        }
    }

    fn invariants() -> &'static [Invariant<Self>] {
        &invariants::ALL
    }
}

impl World {
    fn take(&mut self, setting: &Setting, step: Step) -> Option<()> {
        match step {
            Step::Tick => self.tick += 1,
            Step::Call { process } => {
                one_of(&mut self.left.calls)?;
                self.send(setting, process, 1, setting.want)?;
            }
            Step::Return { process } => {
                one_of(&mut self.left.returns)?;
                self.send(setting, process, 0, 0)?;
            }
            Step::Serve {
                process,
                call,
                again,
            } => {
                let call = if again {
                    one_of(&mut self.left.losses)?;
                    self.processes[process].calls[call].clone()
                } else {
                    self.processes[process].calls.swap_remove(call)
                };
                let answer = self.serve(setting, &call.content);
                if answer.admitted {
                    self.admit(setting, call.content.cost);
                }
                if let Some(content) = answer.grant.filter(|_| !again) {
                    let tick = call.tick;
                    self.processes[process].grants.push(Sent { tick, content });
                }
            }
            Step::Receive { process, grant } => {
                let answer = self.processes[process].grants.swap_remove(grant);
                let begin = if setting.has(Mistake::LifeFromAnswer) {
                    self.tick
                } else {
                    answer.tick
                };
                self.processes[process]
                    .units
                    .add(at_us(begin), answer.content);
            }
            Step::LoseCall { process, call } => {
                one_of(&mut self.left.losses)?;
                self.processes[process].calls.swap_remove(call);
            }
            Step::LoseAnswer { process, grant } => {
                one_of(&mut self.left.losses)?;
                self.processes[process].grants.swap_remove(grant);
            }
            Step::Spend { process } => {
                let by_us = if setting.has(Mistake::KeptUnits) {
                    at_us(0)
                } else {
                    self.now_us()
                };
                let decided_us = self.server_us();
                let units = &mut self.processes[process].units;
                let birth = units.spend(by_us, decided_us, 1)?[0].birth;
                if birth > self.forgotten {
                    self.admit(setting, 1);
                }
            }
            Step::Crash { process } => {
                one_of(&mut self.left.crashes)?;
                let calls = std::mem::take(&mut self.processes[process].calls);
                self.processes[process] = Process {
                    calls,
                    ..Process::default()
                };
            }
            Step::LoseState => {
                one_of(&mut self.left.lost_states)?;
                self.account = None;
                self.forgotten = self.births;
                self.bound = Bound::new(self.bound.out());
            }
            Step::Copy => self.copy.clone_from(&self.account),
            Step::FailOver => {
                one_of(&mut self.left.failures)?;
                self.account.clone_from(&self.copy);
                self.bound = Bound::new(self.bound.out() + self.spendable());
            }
            Step::StepClock { by } => {
                one_of(&mut self.left.clock_steps)?;
                self.ahead += by;
                if by > 0 {
                    self.bound = Bound::new(self.bound.out() + self.spendable());
                }
            }
        }
        Some(())
    }

    /// Sends a call with what a process has to report. One without a cost returns all it holds, if
    /// that is anything.
    fn send(&mut self, setting: &Setting, process: usize, cost: u64, want: u64) -> Option<()> {
        let (tick, now_us, gives_back) = (self.tick, self.now_us(), cost == 0);
        let of = &mut self.processes[process];
        if gives_back && of.units.held(now_us) == 0 {
            return None;
        }
        let before = of.units.clone();
        let reports = of.units.take_reports(now_us, gives_back);
        if setting.has(Mistake::ReportStays) && !gives_back
            || setting.has(Mistake::ReturnKeeps) && gives_back
        {
            of.units = before;
        }
        let content = Call {
            cost,
            want,
            birth: 0,
            reports,
        };
        of.calls.push(Sent { tick, content });
        Some(())
    }
}
