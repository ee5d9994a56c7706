//! One random schedule: what happens to a server and its replicas, in which order.

mod calls;
mod events;
mod policies;

use std::time::Duration;

use tollgate::{
    Lease, Policy, PolicySet, Quota,
    testing::{Grant, HeldUnits, Stamps},
};
use tollgate_test_support::calls::Call;

use super::{mistake::Mistake, oracle::Oracle, server::Server};
use crate::random::Random;

const REPLICAS: usize = 3;

/// The time at which schedules begin: far from the epoch, and the start of a generation and of a
/// window.
const BEGIN: u64 = 1_680_000_000_000_000;

/// The most that the clock of a replica is slow or fast, in millionths.
const DRIFT: u64 = 900;

/// Tells what happened in a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Units that were admitted.
    pub(crate) admitted: u64,
    /// Units of them that were spent from a lease.
    pub(crate) leased: u64,
    /// Tells whether more was admitted than the bound allows.
    pub(crate) exceeded: bool,
}

#[derive(Debug)]
struct Replica {
    units: Vec<HeldUnits>,
    /// The speed of its clock: millionths more or less.
    drift: i64,
    /// The time that a clock lost that stops while the machine is suspended.
    slept: u64,
    asleep_until: u64,
}

/// A call or an answer on its way.
#[derive(Debug)]
struct Message<T> {
    replica: usize,
    key: usize,
    sent: u64,
    content: T,
}

struct World {
    random: Random,
    mistake: Option<Mistake>,
    now: u64,
    /// The clock of the server is ahead by this.
    offset: i64,
    lease: Lease,
    policies: PolicySet,
    keys: usize,
    server: Server,
    replicas: Vec<Replica>,
    oracles: Vec<Oracle>,
    calls: Vec<Message<Call>>,
    grants: Vec<Message<Grant>>,
    /// Decisions that may be refunded: those of the server, and those from a lease.
    direct: Vec<(usize, u64, u64)>,
    leased: Vec<(usize, usize, u64, u64)>,
    refunds: bool,
    events: bool,
    /// The times of events whose grants may still be alive.
    recent_events: Vec<u64>,
    /// The stamps of all grants, and of those from before the last event.
    stamps: Vec<Stamps>,
    old_stamps: Vec<Stamps>,
    outcome: Outcome,
}

/// Runs the schedule of a seed.
pub(crate) fn run(seed: u64, mistake: Option<Mistake>) -> Outcome {
    let mut world = World::new(seed, mistake);
    for _ in 0..120 {
        world.act();
        if world.outcome.exceeded {
            break;
        }
    }
    world.outcome
}

impl World {
    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut random = Random::new(seed);
        for _ in 0..4 {
            random.share();
        }
        let lease = Lease::new().generation(Duration::from_millis(random.pick(&[100, 200, 500])));
        let lease = lease.share(random.pick(&[1, 1, 2, 4]));
        let is_nested = random.chance(0.2);
        let keys = if is_nested { 2 } else { 1 };
        let count = if is_nested || random.chance(0.2) {
            2
        } else {
            1
        };
        let policies: Vec<Policy> = (0..count)
            .map(|at| policies::policy(&mut random, at, lease))
            .collect();
        let mut server = Server::new(count, keys, is_nested, mistake);
        let oracles = (0..count * keys)
            .map(|place| Oracle::new(&policies[place / keys]))
            .collect();
        let replicas = (0..REPLICAS).map(|_| Replica {
            units: vec![HeldUnits::default(); keys],
            drift: random.pick(&[0, DRIFT as i64, -(DRIFT as i64)]),
            slept: 0,
            asleep_until: 0,
        });
        let replicas = replicas.collect();
        server.lose();
        Self {
            mistake,
            now: BEGIN,
            offset: 0,
            lease,
            policies: PolicySet::try_new(policies).unwrap_or_else(|error| unreachable!("{error}")),
            keys,
            server,
            replicas,
            oracles,
            calls: Vec::new(),
            grants: Vec::new(),
            direct: Vec::new(),
            leased: Vec::new(),
            refunds: random.chance(0.25),
            events: random.chance(0.4),
            recent_events: Vec::new(),
            stamps: Vec::new(),
            old_stamps: Vec::new(),
            outcome: Outcome::default(),
            random,
        }
    }

    fn act(&mut self) {
        let (replica, key) = (
            self.random.below(REPLICAS as u64) as usize,
            self.random.below(self.keys as u64) as usize,
        );
        let is_awake = self.now >= self.replicas[replica].asleep_until;
        match self.random.below(100) {
            0..32 if is_awake => self.ask(replica, key),
            32..48 if is_awake => self.spend_held(replica, key),
            48..51 => self.rush(key),
            51 => self.rush_at_the_end(key),
            52..58 => self.deliver_call(),
            58..62 => self.deliver_grant(),
            62..64 => {
                let at = self.random.below(self.calls.len() as u64 + 1) as usize;
                if at < self.calls.len() {
                    self.calls.swap_remove(at);
                }
            }
            64..66 => self.replicas[replica].units = vec![HeldUnits::default(); self.keys],
            66..68 => {
                let time = self.random.below(3 * self.generation());
                self.replicas[replica].asleep_until = self.now + time;
                if self.mistake == Some(Mistake::ClockSleeps) {
                    self.replicas[replica].slept += time;
                }
            }
            68..72 if self.refunds => self.refund(),
            72..74 if self.events => self.event(),
            _ => self.now += self.step(),
        }
    }

    fn generation(&self) -> u64 {
        self.lease.length().as_micros() as u64
    }

    /// Returns a time step: often near a time at which something ends.
    fn step(&mut self) -> u64 {
        let at = self.random.below(self.policies.len() as u64) as usize;
        let quota = self
            .policies
            .iter()
            .nth(at)
            .map_or(Quota::per_second(1), Policy::quota);
        let (period, generation) = (quota.period().as_micros() as u64, self.generation());
        let unit = period / quota.amount();
        let boundary = generation - self.server_now() % generation;
        let edge = period - self.server_now() % period;
        let slack = self.random.below(2 * generation * DRIFT / 1_000_000 + 2);
        self.random.pick(&[
            0,
            1,
            unit,
            unit,
            unit + 1,
            3 * unit,
            period / 3,
            period,
            period - 1,
            edge,
            edge - 1,
            generation,
            boundary,
            boundary,
            boundary - 1,
            boundary + slack,
            boundary + slack,
            boundary + generation,
            boundary + 2 * generation,
            slack,
            slack,
        ])
    }

    fn birth(&mut self) -> u64 {
        self.random.below(1 << 53)
    }

    fn server_now(&self) -> u64 {
        self.now.saturating_add_signed(self.offset)
    }

    /// Returns the clock of a replica.
    fn local(&self, replica: usize) -> u64 {
        let replica = &self.replicas[replica];
        let gained = (self.now - BEGIN) as i64 * replica.drift / 1_000_000;
        self.now.saturating_add_signed(gained) - replica.slept
    }

    /// Checks a key: from the held units, or by a call.
    fn ask(&mut self, replica: usize, key: usize) {
        let cost = self.random.pick(&[1, 1, 1, 2, 3, 0]);
        if cost > 0 && self.random.chance(0.5) && self.spend(replica, key, cost) {
            return;
        }
        self.call(replica, key, cost);
    }

    /// Spends at one instant what the server and all replicas have: the worst that can happen.
    fn rush(&mut self, key: usize) {
        let is_server_first = self.random.chance(0.5);
        for is_server in [is_server_first, !is_server_first] {
            if is_server {
                for cost in [32, 32, 16, 8, 4, 2, 1] {
                    let content = Call {
                        cost,
                        want: 0,
                        birth: self.birth(),
                        reports: Vec::new(),
                    };
                    self.serve(Message {
                        replica: 0,
                        key,
                        sent: self.local(0),
                        content,
                    });
                }
                continue;
            }
            self.spend_all(key);
        }
    }

    /// Spends what replicas have just before a generation ends, and what the server has just
    /// afterwards.
    fn rush_at_the_end(&mut self, key: usize) {
        let generation = self.generation();
        // The longest life of a grant ends a little earlier.
        let early = self.random.pick(&[1, generation / 400]);
        let boundary = generation - self.server_now() % generation;
        self.now += boundary.saturating_sub(early);
        self.spend_all(key);
        self.now += early + 1;
        self.rush(key);
    }

    fn spend_all(&mut self, key: usize) {
        for replica in 0..REPLICAS {
            if self.now >= self.replicas[replica].asleep_until {
                while self.spend(replica, key, 1) {}
            }
        }
    }

    /// Spends many held units at once.
    fn spend_held(&mut self, replica: usize, key: usize) {
        let held = self.replicas[replica].units[key].held(self.local(replica));
        let units = if self.random.chance(0.5) {
            held
        } else {
            self.random.below(held + 1)
        };
        for _ in 0..units {
            self.spend(replica, key, 1);
        }
    }

    fn spend(&mut self, replica: usize, key: usize, cost: u64) -> bool {
        let local = self.local(replica);
        let Some(stamps) = self.replicas[replica].units[key]
            .spend(local, cost)
            .cloned()
        else {
            return false;
        };
        let is_old = self.old_stamps.contains(&stamps);
        self.admit(key, cost, true, is_old);
        if self.refunds {
            self.leased.push((replica, key, cost, self.server_now()));
        }
        true
    }

    fn admit(&mut self, key: usize, cost: u64, is_leased: bool, is_old: bool) {
        let (now, server_now) = (self.now, self.server_now());
        self.outcome.admitted += cost;
        self.outcome.leased += if is_leased { cost } else { 0 };
        for policy in 0..self.policies.len() {
            let oracle = &mut self.oracles[self.server.place(policy, key)];
            let cost = if is_old {
                oracle.leased(now, cost)
            } else {
                cost
            };
            self.outcome.exceeded |= !oracle.admit(now, server_now, cost);
        }
    }
}
