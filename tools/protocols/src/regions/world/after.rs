//! Changes the world by one step. `None` where it is not possible.
//! The rules of home and purse that it calls are in `protocol/`.

use super::{At, Message, Region, Server, Setting, Step, World};
use crate::regions::protocol::{Home, Mistake, Pot, Purse, Report, Time};

/// Takes one of what may happen so often.
fn one_of(left: &mut u8) -> Option<()> {
    *left = left.checked_sub(1)?;
    Some(())
}

impl World {
    /// Changes the world by a step. A world whose step was not possible is of no use.
    pub(super) fn take(&mut self, setting: &Setting, step: &Step) -> Option<()> {
        match *step {
            Step::Tick => {
                self.tick(setting);
                Some(())
            }
            Step::Claim {
                process,
                at,
                gives_back,
            } => self.claim(setting, process, at, gives_back),
            Step::Call { process, at, again } => self.call(setting, process, at, again),
            Step::Deposit { process, at, again } => self.deposit(setting, process, at, again),
            Step::Lose { process } => {
                one_of(&mut self.left.losses)?;
                self.processes[process].message = Message::None;
                Some(())
            }
            Step::Lease { process, at } => self.lease(setting, process, at),
            Step::Report {
                process,
                at,
                goes_on,
            } => {
                let report = self.report(setting, process, goes_on)?;
                let (region, now) = (process / setting.processes, self.now);
                let server = self.regions[region].server(at)?;
                server.touch(&setting.rules, now);
                server.purse.report(&setting.rules, report);
                Some(())
            }
            Step::LoseReport { process, goes_on } => {
                one_of(&mut self.left.losses)?;
                self.report(setting, process, goes_on).map(|_| ())
            }
            Step::Spend { process } => {
                let spends = self.processes[process].pot.as_mut()?.spend(self.now);
                spends.then(|| self.admit(setting))
            }
            Step::Check { region, at } => {
                let now = self.now;
                let server = self.regions[region].server(at)?;
                server.touch(&setting.rules, now);
                let spends = server.purse.spend();
                spends.then(|| self.admit(setting))
            }
            Step::Crash { process } => {
                one_of(&mut self.left.crashes)?;
                let process = &mut self.processes[process];
                (process.message, process.pot) = (Message::None, None);
                Some(())
            }
            Step::Copy { region } => {
                let region = &mut self.regions[region];
                // A leader that was cut off before gets no copy.
                region
                    .old
                    .is_none()
                    .then(|| region.copy = region.leader.purse.clone())
            }
            Step::FailOver {
                region,
                old_lives,
                clock,
            } => {
                one_of(&mut self.left.region_failures)?;
                self.regions[region].fail_over(setting, old_lives, clock)
            }
            Step::EndOld { region } => self.regions[region].old.take().map(|_| ()),
            Step::StepClock { region, by } => {
                one_of(&mut self.left.clock_steps)?;
                self.regions[region].leader.ahead += by;
                Some(())
            }
            Step::CopyHome => self.copy_home(),
            Step::FailOverHome { old_lives, clock } => {
                self.fail_over_home(setting, old_lives, clock)
            }
            Step::EndOldHome => self.old_home.take().map(|_| ()),
        }
    }

    fn admit(&mut self, setting: &Setting) {
        self.admitted[(self.now / setting.rules.period) as usize] += 1;
    }

    fn tick(&mut self, setting: &Setting) {
        self.now += 1;
        let now = self.now;
        let homes = [Some(&mut self.home), self.old_home.as_mut()];
        homes
            .into_iter()
            .flatten()
            .for_each(|home| home.roll(&setting.rules, now));
        for process in &mut self.processes {
            // Nobody can see it any more.
            process
                .pot
                .take_if(|pot| now >= pot.until && pot.spent == 0);
        }
    }

    fn claim(&mut self, setting: &Setting, process: usize, at: At, gives_back: bool) -> Option<()> {
        one_of(&mut self.left.calls)?;
        if gives_back {
            one_of(&mut self.left.returns)?;
        }
        let server = self.regions[process / setting.processes].server(at)?;
        let now = server.touch(&setting.rules, self.now);
        let call = server
            .purse
            .claim(&setting.rules, server.reign, now, gives_back)?;
        self.processes[process].message = Message::Call(call);
        Some(())
    }

    fn call(&mut self, setting: &Setting, process: usize, at: At, again: bool) -> Option<()> {
        let Message::Call(call) = self.processes[process].message.clone() else {
            return None;
        };
        let home = match at {
            At::Leader => &mut self.home,
            At::Old => self.old_home.as_mut()?,
        };
        let (region, birth) = ((process / setting.processes) as u8, self.births + 1);
        let grant = home.serve(&setting.rules, self.now, region, &call, birth);
        self.births = self.births.max(home.birth());
        if again {
            return one_of(&mut self.left.repeats);
        }
        self.processes[process].message = Message::Granted {
            deposit: call.deposit(grant),
            counts: !setting.waits(),
            home: home.reign,
        };
        Some(())
    }

    fn deposit(&mut self, setting: &Setting, process: usize, at: At, again: bool) -> Option<()> {
        let Message::Granted {
            deposit,
            counts: true,
            ..
        } = self.processes[process].message
        else {
            return None;
        };
        let server = self.regions[process / setting.processes].server(at)?;
        let now = server.touch(&setting.rules, self.now);
        server
            .purse
            .deposit(&setting.rules, server.reign, now, &deposit);
        if again {
            return one_of(&mut self.left.repeats);
        }
        self.processes[process].message = Message::None;
        Some(())
    }

    fn lease(&mut self, setting: &Setting, process: usize, at: At) -> Option<()> {
        one_of(&mut self.left.leases)?;
        let server = self.regions[process / setting.processes].server(at)?;
        let now = server.touch(&setting.rules, self.now);
        let pot = server.purse.lease(&setting.rules, now, self.now)?;
        self.processes[process].pot = Some(pot);
        Some(())
    }

    /// Takes the report of a process, which ends its lease or goes on with it.
    fn report(&mut self, setting: &Setting, process: usize, goes_on: bool) -> Option<Report> {
        let pot = &mut self.processes[process].pot;
        if goes_on {
            return pot.as_mut().map(Pot::take_report);
        }
        let pot = pot.take()?;
        Some(pot.report(&setting.rules, self.now))
    }

    /// Lets the copy of the home catch up. The grants of this home that wait for it count then.
    fn copy_home(&mut self) -> Option<()> {
        if self.old_home.is_some() {
            return None;
        }
        self.home_copy = self.home.clone();
        for process in &mut self.processes {
            if let Message::Granted { counts, home, .. } = &mut process.message {
                *counts |= *home == self.home.reign;
            }
        }
        Some(())
    }

    fn fail_over_home(&mut self, setting: &Setting, old_lives: bool, clock: Time) -> Option<()> {
        one_of(&mut self.left.home_failures)?;
        if self.old_home.is_some() {
            return None;
        }
        let home = Home::succeed(&self.home_copy, &self.home, &setting.rules, self.now, clock);
        let before = std::mem::replace(&mut self.home, home);
        self.home_copy = self.home.clone();
        if old_lives {
            self.old_home = Some(before);
        } else {
            // Nobody confirms these grants any more.
            for process in &mut self.processes {
                if matches!(process.message, Message::Granted { counts: false, .. }) {
                    process.message = Message::None;
                }
            }
        }
        Some(())
    }
}

impl Region {
    fn server(&mut self, at: At) -> Option<&mut Server> {
        match at {
            At::Leader => Some(&mut self.leader),
            At::Old => self.old.as_mut(),
        }
    }

    fn fail_over(&mut self, setting: &Setting, old_lives: bool, clock: Time) -> Option<()> {
        if self.old.is_some() {
            return None;
        }
        self.last_reign = if setting.rules.has(Mistake::ReignOfServer) {
            // Two servers take turns, and each has its own number.
            1 - self.last_reign
        } else {
            self.last_reign + 1
        };
        let ahead = self.leader.ahead + clock;
        let next = Server {
            reign: self.last_reign,
            ahead,
            seen: ahead,
            purse: Purse::clone(&self.copy),
        };
        let before = std::mem::replace(&mut self.leader, next);
        self.old = old_lives.then_some(before);
        Some(())
    }
}
