//! The invariants of every state.

use tollgate_test_support::calls::Call;

use super::{setting::Setting, world::World};
use crate::explorer::Invariant;

/// The ticks of two generations.
const LAPSE: u64 = 4;

pub(super) const ALL: [Invariant<Setting>; 4] = [
    Invariant {
        name: "bound",
        holds: |setting, world| world.bound.holds(setting.policy()),
    },
    Invariant {
        name: "rush",
        holds: |setting, world| world.rushed(setting).bound.holds(setting.policy()),
    },
    Invariant {
        name: "backed",
        holds: |setting, world| world.is_backed(setting),
    },
    Invariant {
        name: "recovers",
        holds: |setting, world| world.recovers(setting),
    },
];

impl World {
    /// Returns the state after everything was spent at once: what processes hold, and what the
    /// server has left. It is the worst that can happen now.
    fn rushed(&self, setting: &Setting) -> Self {
        let mut world = self.clone();
        world.admit(setting, world.spendable());
        let check = Call {
            cost: 1,
            ..Call::default()
        };
        while world.serve(setting, &check).admitted {
            world.admit(setting, 1);
        }
        world
    }

    /// Returns whether each unit that can be spent is outstanding at the server, but for those that
    /// it has forgotten, and whether no more than the share is.
    fn is_backed(&self, setting: &Setting) -> bool {
        let (account, _) = self.current(setting);
        let outstanding = account.outstanding();
        let most = setting.lease().most(&setting.policy().quota());
        self.spendable() <= outstanding + self.bound.out() && outstanding <= most
    }

    /// Returns whether the whole quota is free when everything has lapsed and a period has passed.
    fn recovers(&self, setting: &Setting) -> bool {
        let mut world = self.clone();
        let period = setting.policy().quota().period().as_micros() as u64;
        // A clock that went back by four ticks makes it wait for two periods at most.
        world.tick += 2 * LAPSE + 2 * period / super::setting::TICK_US;
        let (account, _) = world.current(setting);
        let quota = setting.policy().quota();
        account.outstanding() == 0
            && account.remaining(setting.policy(), world.server_us()) == quota.burst()
    }
}
