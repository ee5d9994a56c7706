//! Four processes that lease the units of one key, and the faults that befall them.

use std::{process::Command, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tollgate_tests::{Process, RedisSentinels, RedisServer, wait};

use super::{
    bound::Admission,
    replica::{GENERATION, Line, Load},
};
use crate::permits::now_us;

/// The longest wait for what the processes do, also on a machine with a lot of other work.
const PATIENCE: Duration = Duration::from_secs(600);

/// The processes.
const REPLICAS: usize = 4;

/// The units that a process holds at least when it is killed or stopped.
const HELD: u64 = 20;

/// Four processes that lease the units of one key. They gather units at a moderate rate, until they
/// are told to spend at once what they can get.
///
/// Dropping the value kills the processes.
#[derive(Debug)]
pub struct LeaseReplicas([Replica; REPLICAS]);

#[derive(Debug)]
struct Replica {
    process: Process,
    is_alive: bool,
}

impl LeaseReplicas {
    /// Starts the processes, and waits until each has spent leased units.
    ///
    /// Each command has to call [`run_lease_replica`](crate::run_lease_replica) with the URL of the
    /// server.
    ///
    /// # Panics
    ///
    /// When a process does not start.
    #[must_use]
    pub fn start(program: impl Fn() -> Command, generation: Duration) -> Self {
        let start = |_| {
            let mut command = program();
            command.env(GENERATION, generation.as_millis().to_string());
            Replica {
                process: Process::start_listening(command, "ready"),
                is_alive: true,
            }
        };
        let this = Self([0; REPLICAS].map(start));
        this.wait_for_leases();
        this
    }

    /// Kills a process that holds units.
    ///
    /// # Panics
    ///
    /// When it is granted none.
    pub fn kill(&mut self, at: usize) {
        self.0[at].wait_for_units();
        self.0[at].is_alive = false;
        self.0[at].process.kill();
    }

    /// Stops a process that holds units, until they have lapsed, the bucket was full again, and the
    /// others have drained it.
    ///
    /// Only then a unit that the process spends late shows: while the bucket fills, the server has
    /// room for it.
    ///
    /// # Panics
    ///
    /// When the process has ended, or the others do not drain the bucket.
    pub fn stop(&self, at: usize, server: &RedisServer) {
        let stopped = &self.0[at];
        stopped.wait_for_units();
        stopped.signal(Signal::STOP);
        self.tell(Load::Rest);
        wait::until("a full bucket", PATIENCE, || {
            server.keys_and_expires().0 == 0
        });
        let since_us = now_us();
        self.tell(Load::Spend);
        let others = || {
            self.0
                .iter()
                .enumerate()
                .filter(|(other, it)| *other != at && it.is_alive)
        };
        wait::until("the others to be denied", PATIENCE, || {
            others().all(|(_, it)| it.is_denied(since_us))
        });
        let since_us = now_us();
        stopped.signal(Signal::CONT);
        wait::until("the process to be denied", PATIENCE, || {
            stopped.is_denied(since_us)
        });
        self.tell(Load::Gather);
    }

    /// Waits until all processes that live have spent leased units and then have been denied by the
    /// store, from now on.
    ///
    /// A disturbance before it proves a bound only with that: what a process is granted too much is
    /// spent.
    ///
    /// # Panics
    ///
    /// When they are not.
    pub fn wait_until_drained(&self) {
        self.wait_for_leases();
        self.drain();
    }

    /// Lets Sentinels replace the master while the processes hold units, and waits until the
    /// processes have drained the next one.
    ///
    /// `before` is called when nothing is written any more. It may change what the next master
    /// begins with.
    ///
    /// # Panics
    ///
    /// When no other master is there in time, or the processes do not drain it.
    pub fn fail_over(&self, sentinels: &RedisSentinels, before: impl FnOnce(&RedisSentinels)) {
        self.0[0].wait_for_units();
        self.tell(Load::Rest);
        sentinels.wait_for_replicas();
        before(sentinels);
        // A fail-over that Sentinels gave up is requested again.
        wait::until("another master", PATIENCE, || {
            if sentinels.risen().is_none() {
                let _ = sentinels.begins_fail_over();
            }
            sentinels.risen().is_some()
        });
        // It would admit checks until the processes have learned of the other one.
        sentinels.old().kill();
        let since_us = now_us();
        // Units that are spent before accrue again until the other master is asked.
        wait::until("each process to reach it", PATIENCE, || {
            self.alive().all(|it| it.has_reached(since_us))
        });
        self.drain();
    }

    /// Lets the processes that live spend what they can get, until the store has denied each.
    fn drain(&self) {
        let since_us = now_us();
        self.tell(Load::Spend);
        wait::until("each process to be denied", PATIENCE, || {
            self.alive().all(|it| it.is_denied(since_us))
        });
        self.tell(Load::Gather);
    }

    /// Waits until all processes that live have spent leased units, from now on.
    fn wait_for_leases(&self) {
        let since_us = now_us();
        wait::until("each process to spend leased units", PATIENCE, || {
            self.alive().all(|it| it.holds(since_us).is_some())
        });
    }

    /// Kills all processes, and returns their admissions.
    #[must_use]
    pub fn end(mut self) -> Vec<Admission> {
        let mut admissions = Vec::new();
        for Replica { process, .. } in &mut self.0 {
            process.kill();
            let output = process.output();
            // The last line of a process that was killed may be cut off.
            let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
            admissions.extend(whole.lines().filter_map(Line::read).filter_map(admission));
        }
        admissions
    }

    fn tell(&self, load: Load) {
        self.alive().for_each(|it| it.process.tell(load.word()));
    }

    fn alive(&self) -> impl Iterator<Item = &Replica> {
        self.0.iter().filter(|it| it.is_alive)
    }
}

impl Replica {
    fn wait_for_units(&self) {
        let since_us = now_us();
        wait::until("units that the process holds", PATIENCE, || {
            self.holds(since_us).is_some_and(|units| units >= HELD)
        });
    }

    /// Returns the units that the process held after the last check that a leased unit decided, if
    /// one did since a time.
    fn holds(&self, since_us: u64) -> Option<u64> {
        self.last(since_us, |line| {
            if let Line::Admitted { holds, .. } = line {
                holds
            } else {
                None
            }
        })
    }

    /// Returns whether the store has denied a check that began since a time.
    fn is_denied(&self, since_us: u64) -> bool {
        self.last(since_us, |line| {
            matches!(line, Line::Denied { .. }).then_some(())
        })
        .is_some()
    }

    /// Returns whether the store has answered a look at another key that began since a time.
    fn has_reached(&self, since_us: u64) -> bool {
        self.last(since_us, |line| {
            matches!(line, Line::Reached { .. }).then_some(())
        })
        .is_some()
    }

    /// Returns what the last line tells that tells it, of a check that began since a time.
    fn last<T>(&self, since_us: u64, tells: impl Fn(Line) -> Option<T>) -> Option<T> {
        let output = self.process.output();
        let lines = output.lines().rev().filter_map(Line::read);
        // Checks of several tasks end in another order than they began in.
        lines
            .filter(|line| line.began_us() >= since_us)
            .find_map(tells)
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.pid())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process number");
        kill_process(pid, signal).expect("the process runs");
    }
}

fn admission(line: Line) -> Option<Admission> {
    match line {
        Line::Admitted {
            from_us,
            to_us,
            holds,
        } => Some(Admission {
            from_us,
            to_us,
            is_leased: holds.is_some(),
        }),
        Line::Denied { .. } | Line::Reached { .. } => None,
    }
}
