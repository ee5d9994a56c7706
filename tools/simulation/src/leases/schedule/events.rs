//! Refunds, and events after which the bounds begin anew.

use std::time::Duration;

use tollgate::{Policy, PolicySet, testing::Grant};

use super::{Message, World, policies};

impl World {
    /// Refunds a decision: into the held units when that is possible, otherwise at the server.
    pub(super) fn refund(&mut self) {
        let (now, server_now) = (self.now, self.server_now());
        let refunded = if !self.leased.is_empty() && self.random.chance(0.5) {
            let at = self.random.below(self.leased.len() as u64) as usize;
            let (replica, key, cost, spent) = self.leased.swap_remove(at);
            let local = self.local(replica);
            match self.replicas[replica].units[key].refund(local, cost) {
                None => {
                    self.server
                        .refund(&self.policies, self.lease, key, [server_now, spent], cost);
                }
                // The unit was outstanding at the event, and can be spent again.
                Some(stamps) if self.old_stamps.contains(stamps) => {
                    for policy in 0..self.policies.len() {
                        self.oracles[self.server.place(policy, key)].exempt(cost);
                    }
                }
                Some(_) => {}
            }
            (key, cost)
        } else if let Some((key, cost, spent)) = self.direct.pop() {
            let times = [server_now, spent];
            self.server
                .refund(&self.policies, self.lease, key, times, cost);
            (key, cost)
        } else {
            return;
        };
        for policy in 0..self.policies.len() {
            self.oracles[self.server.place(policy, refunded.0)].refund(now, server_now, refunded.1);
        }
    }

    /// Lets something happen after which more than the bound may be admitted, by a stated number of
    /// units.
    pub(super) fn event(&mut self) {
        self.now += 1;
        let generation = self.generation();
        match self.random.below(6) {
            0 => {
                self.offset += self.random.pick(&[
                    1,
                    generation as i64 / 2,
                    generation as i64,
                    9 * generation as i64,
                ]);
            }
            1 => {
                let most = self.random.pick(&[
                    1,
                    generation / 2,
                    generation,
                    2 * generation,
                    9 * generation,
                ]);
                self.offset -= 1 + self.random.below(most) as i64;
            }
            2 => self.server.lose(),
            3 => {
                let key = self.random.below(self.keys as u64) as usize;
                self.server.reset(key);
            }
            4 => {
                let count = self.policies.len();
                let same: Vec<_> = self.policies.iter().map(Policy::algorithm).collect();
                let policies = (0..count)
                    .map(|at| policies::policy_of(&mut self.random, at, self.lease, same[at]));
                let policies: Vec<_> = policies.collect();
                self.restart();
                self.policies =
                    PolicySet::try_new(policies).unwrap_or_else(|error| unreachable!("{error}"));
            }
            _ => {
                let ms = self.random.pick(&[100, 200, 500]);
                let lease = self.lease.generation(Duration::from_millis(ms));
                let policies = self
                    .policies
                    .iter()
                    .map(|policy| policy.clone().leased(lease));
                let policies =
                    PolicySet::try_new(policies).unwrap_or_else(|error| unreachable!("{error}"));
                self.restart();
                (self.lease, self.policies) = (lease, policies);
            }
        }
        self.restart();
    }

    /// Begins the bounds anew, and checks how many units replicas hold beside them: at most the
    /// share of the burst for each event whose grants are alive.
    pub(super) fn restart(&mut self) {
        let now = self.now;
        self.old_stamps.clone_from(&self.stamps);
        // The longest generation of a schedule, twice.
        let until = now + 1_001_000;
        self.recent_events.push(now);
        self.recent_events.retain(|at| at + 1_001_000 > now);
        let events = self.recent_events.len() as u64;
        for (at, policy) in self.policies.iter().enumerate() {
            for place in at * self.keys..(at + 1) * self.keys {
                let keys = (0..self.keys).filter(|&key| self.server.place(at, key) == place);
                let held: u64 = keys.map(|key| self.spendable(key)).sum();
                let most = policy.quota().burst().max(96);
                self.outcome.exceeded |= events == 1 && held > self.lease.most(&policy.quota());
                self.outcome.exceeded |= held > most * events;
                self.oracles[place].restart(policy, held, until);
            }
        }
    }

    /// Returns the units that replicas may spend for a key.
    pub(super) fn spendable(&self, key: usize) -> u64 {
        let held = self
            .replicas
            .iter()
            .enumerate()
            .map(|(at, replica)| replica.units[key].held(self.local(at)));
        let alive = |grant: &&Message<Grant>| {
            let life = grant.content.life_us - grant.content.life_us.div_ceil(1_000);
            grant.key == key && self.local(grant.replica) < grant.sent + life
        };
        let on_the_way = self
            .grants
            .iter()
            .filter(alive)
            .map(|grant| grant.content.units);
        held.sum::<u64>() + on_the_way.sum::<u64>()
    }
}
