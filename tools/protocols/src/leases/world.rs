//! The state of everything: the server, the processes, and the messages on their way.

use std::{
    fmt::{self, Debug, Write},
    hash::{Hash, Hasher},
};

use tollgate::testing::{Grant, HeldUnits};
use tollgate_test_support::{calls::Call, leases::Account};

use super::{
    bound::Bound,
    setting::{BEGIN_US, Budget, Setting, TICK_US},
};

/// The state of everything.
#[derive(Clone, Debug)]
pub struct World {
    /// The ticks since the beginning.
    pub(super) tick: u64,
    /// The ticks by which the clock of the server is ahead.
    pub(super) ahead: i64,
    /// The state of the policy at the server. A fresh one is none.
    pub(super) account: Option<Account>,
    /// The copy that another server has.
    pub(super) copy: Option<Account>,
    pub(super) processes: Vec<Process>,
    /// The number of births that grants have had.
    pub(super) births: u64,
    pub(super) bound: Bound,
    /// The last birth before a state was lost. What was granted under it, or before, is admitted in
    /// addition to the promise.
    pub(super) forgotten: u64,
    pub(super) left: Budget,
}

/// A process, and the messages between it and the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) units: HeldUnits,
    pub(super) calls: Vec<Sent<Call>>,
    pub(super) grants: Vec<Sent<Grant>>,
}

/// A call or the answer to it.
#[derive(Clone, Debug)]
pub(super) struct Sent<T> {
    /// The tick in which the call left.
    pub(super) tick: u64,
    pub(super) content: T,
}

impl World {
    pub(super) fn new(setting: &Setting) -> Self {
        Self {
            tick: 0,
            ahead: 0,
            account: None,
            copy: None,
            processes: vec![Process::default(); setting.processes],
            births: 0,
            bound: Bound::new(0),
            forgotten: 0,
            left: setting.budget,
        }
    }

    /// Returns the time by a clock that does not step: that of the processes.
    pub(super) fn now_us(&self) -> u64 {
        at_us(self.tick)
    }

    /// Returns the time of the server.
    pub(super) fn server_us(&self) -> u64 {
        self.now_us()
            .saturating_add_signed(self.ahead * TICK_US as i64)
    }

    /// Returns the units that processes may spend now, or when an answer that is on its way arrives
    /// at once. Those of a lost state are left out.
    pub(super) fn spendable(&self) -> u64 {
        let in_hands = self.processes.iter().map(|process| process.units.clone());
        let on_their_way = self.processes.iter().flat_map(|process| &process.grants);
        let received = on_their_way.map(|grant| {
            let mut units = HeldUnits::default();
            units.add(at_us(grant.tick), grant.content.clone());
            units
        });
        let now_us = self.now_us();
        let spendable = |mut units: HeldUnits| {
            let mut sum = 0;
            while let Some(stamps) = units.spend(now_us, now_us, 1) {
                sum += u64::from(stamps[0].birth > self.forgotten);
            }
            sum
        };
        in_hands.chain(received).map(spendable).sum()
    }

    /// Counts an admission.
    pub(super) fn admit(&mut self, setting: &Setting, units: u64) {
        self.bound.count(setting.policy(), self.now_us(), units);
    }

    /// Puts processes in order, which are alike, and the messages of each.
    pub(super) fn order(&mut self) {
        for process in &mut self.processes {
            process.calls.sort_by_cached_key(digest);
            process.grants.sort_by_cached_key(digest);
        }
        self.processes.sort_by_cached_key(digest);
    }
}

/// Returns the time of a tick.
pub(super) fn at_us(tick: u64) -> u64 {
    BEGIN_US + tick * TICK_US
}

/// Hashes what is shown of a state: the types of the product show all that they hold.
impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        write!(Shown(state), "{self:?}").expect("a hasher takes everything");
    }
}

fn digest(value: &impl Debug) -> u64 {
    use std::hash::BuildHasher;
    let mut hasher = foldhash::quality::FixedState::default().build_hasher();
    write!(Shown(&mut hasher), "{value:?}").expect("a hasher takes everything");
    hasher.finish()
}

/// Writes text into a hash.
struct Shown<'a, H>(&'a mut H);

impl<H: Hasher> Write for Shown<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
