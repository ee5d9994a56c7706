//! The invariants, which hold in every state.

use super::{Setting, World};
use crate::{
    explorer::Invariant,
    regions::protocol::{Time, Units},
};

/// The bound is the promise. The others find a mistake earlier, and one that withholds units.
pub(super) const ALL: [Invariant<Setting>; 3] = [
    Invariant {
        name: "bound",
        holds: |setting, world| world.is_bounded(setting),
    },
    Invariant {
        name: "backed",
        holds: |setting, world| world.spendable(setting) <= world.home.outstanding(),
    },
    Invariant {
        name: "recovers",
        holds: |setting, world| world.recovers(setting),
    },
];

impl World {
    /// Returns whether no more than the quota was admitted in each period.
    fn is_bounded(&self, setting: &Setting) -> bool {
        self.admitted
            .iter()
            .all(|units| *units <= setting.rules.quota)
    }

    /// Returns the units that servers and processes may spend now. Each has to be one that is
    /// outstanding at the home: else it was granted twice.
    fn spendable(&self, setting: &Setting) -> Units {
        let servers = self
            .regions
            .iter()
            .flat_map(|region| [Some(&region.leader), region.old.as_ref()]);
        let in_purses = servers
            .flatten()
            .map(|server| server.spendable(&setting.rules, self.now));
        let pots = self
            .processes
            .iter()
            .filter_map(|process| process.pot.as_ref());
        in_purses
            .chain(pots.map(|pot| pot.spendable(self.now)))
            .sum()
    }

    /// Returns whether a region gets the whole quota when everything has healed, all that was
    /// outstanding has lapsed, and a period has begun since.
    fn recovers(&self, setting: &Setting) -> bool {
        let rules = &setting.rules;
        let lapsed = self.now + 4 * rules.generation;
        let last: Time = (lapsed / rules.period + 2) * rules.period;
        let mut home = self.home.clone();
        (self.now + 1..=last).for_each(|now| home.roll(rules, now));
        let (mut server, mut births) = (self.regions[0].leader.clone(), self.births);
        for _ in 0..rules.quota {
            let now = server.touch(rules, last);
            let Some(call) = server.purse.claim(rules, server.reign, now, false) else {
                return false;
            };
            let grant = home.serve(rules, last, 0, &call, births + 1);
            births = births.max(home.birth());
            server
                .purse
                .deposit(rules, server.reign, now, &call.deposit(grant));
        }
        server.spendable(rules, last) == rules.quota
    }
}
