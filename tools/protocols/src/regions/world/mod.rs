//! The state of everything: the home with its copy, two regions with their servers and processes,
//! and the messages on their way.
//!
//! | file | holds |
//! |---|---|
//! | `setting.rs` | how large a world is, and what may happen in it |
//! | `steps.rs` | what may happen in a state |
//! | `after.rs` | what a step changes |
//! | `order.rs` | the order of equal parts, so that states which differ in names alone are one |
//! | `invariants.rs` | what has to hold in every state |
//!
//! Time goes in ticks. A message may take any time. A process has one call under way and one lease.

mod after;
mod invariants;
mod order;
mod setting;
mod steps;

use smallvec::SmallVec;

use super::protocol::{Call, Deposit, Home, Mistake, Pot, Purse, Rules, Time, Units};
use crate::explorer::{Invariant, Protocol};
pub use setting::{Budget, Setting};
pub use steps::{At, Step};

/// The number of periods that are counted.
const PERIODS: usize = 9;

/// The number of regions.
const REGIONS: usize = 2;

/// The state of everything.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct World {
    now: Time,
    /// The units that were spent in each period.
    admitted: [Units; PERIODS],
    home: Home,
    /// The state that the server has which takes over.
    home_copy: Home,
    /// A home that was replaced and lives on.
    old_home: Option<Home>,
    /// The number of births that grants have had.
    births: u8,
    regions: [Region; REGIONS],
    /// Those of the first region, then those of the second.
    processes: SmallVec<[Process; 4]>,
    left: Budget,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
struct Region {
    leader: Server,
    /// The purse that the server has which takes over.
    copy: Purse,
    /// A server that was replaced and lives on.
    old: Option<Server>,
    /// The number of the last reign.
    last_reign: u8,
}

/// The server of a region.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord)]
struct Server {
    reign: u8,
    /// The time by which its clock is ahead now.
    ahead: Time,
    /// The most by which its processes have seen it ahead: the floor of its clock.
    seen: Time,
    purse: Purse,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    message: Message,
    pot: Option<Pot>,
}

/// The call that a process carries.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    None,
    /// It is on its way to the home, or was lost and will be sent again.
    Call(Call),
    /// It was answered, and the grant is on its way to the purse.
    Granted {
        deposit: Deposit,
        /// The grant counts: the copies of the home have it.
        counts: bool,
        /// The reign of the home that has granted.
        home: u8,
    },
}

impl World {
    fn new(setting: &Setting) -> Self {
        let region = Region {
            leader: Server::default(),
            copy: Purse::default(),
            old: None,
            last_reign: 0,
        };
        let process = Process {
            message: Message::None,
            pot: None,
        };
        Self {
            now: 0,
            admitted: [0; PERIODS],
            home: Home::new(),
            home_copy: Home::new(),
            old_home: None,
            births: 0,
            regions: std::array::from_fn(|_| region.clone()),
            processes: SmallVec::from_elem(process, REGIONS * setting.processes),
            left: setting.budget,
        }
    }

    /// Returns the number of periods of which all units were spent.
    #[must_use]
    pub fn used_periods(&self, setting: &Setting) -> usize {
        let quota = setting.rules.quota;
        self.admitted
            .iter()
            .filter(|units| **units == quota)
            .count()
    }
}

impl Server {
    /// Returns the time of the server: never less than what its processes have seen.
    fn now(&self, rules: &Rules, now: Time) -> Time {
        if rules.has(Mistake::NoFloor) {
            now + self.ahead
        } else {
            now + self.ahead.max(self.seen)
        }
    }

    /// Notes the time that a process sees, opens the purse, and returns the time.
    fn touch(&mut self, rules: &Rules, now: Time) -> Time {
        self.seen = self.seen.max(self.ahead);
        let now = self.now(rules, now);
        self.purse.open(rules, self.reign, now);
        now
    }

    /// Returns the units that may be spent here now.
    fn spendable(&self, rules: &Rules, now: Time) -> Units {
        self.purse
            .spendable(rules, self.reign, self.now(rules, now))
    }
}

impl Protocol for Setting {
    type State = World;
    type Step = Step;

    fn begin(&self) -> World {
        World::new(self)
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(self, steps);
    }

    fn after(&self, world: &World, step: &Step) -> Option<World> {
        let mut after = world.clone();
        after.take(self, step)?;
        after.order(self);
        (after != *world).then_some(after)
    }

    fn weight(&self, step: &Step) -> u64 {
        step.weight()
    }

    fn invariants() -> &'static [Invariant<Self>] {
        &invariants::ALL
    }
}
