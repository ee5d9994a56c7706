//! One random schedule: what happens to a server and its replicas, in which order.

use std::time::Duration;

use tollgate::{
    Lease, Policy, PolicySet, Quota,
    testing::lease::{Call, Grant, Pot, Stamps},
};

use super::{mistake::Mistake, oracle::Oracle, server::Server};
use crate::random::Random;

const REPLICAS: usize = 3;

/// The time at which schedules begin: far from the epoch, and the start of a generation and of a window.
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
    pots: Vec<Pot>,
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
        let count = if is_nested || random.chance(0.2) { 2 } else { 1 };
        let policies: Vec<Policy> = (0..count).map(|at| policy(&mut random, at, lease)).collect();
        let mut server = Server::new(count, keys, is_nested, mistake);
        let oracles = (0..count * keys).map(|place| Oracle::new(&policies[place / keys])).collect();
        let replicas = (0..REPLICAS).map(|_| Replica {
            pots: vec![Pot::default(); keys],
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
        let (replica, key) =
            (self.random.below(REPLICAS as u64) as usize, self.random.below(self.keys as u64) as usize);
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
            64..66 => self.replicas[replica].pots = vec![Pot::default(); self.keys],
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
        let quota = self.policies.iter().nth(at).map_or(Quota::per_second(1), Policy::quota);
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

    /// Checks a key: from the pot, or by a call.
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
                    let content = Call { cost, want: 0, birth: self.birth(), reports: Vec::new() };
                    self.serve(Message { replica: 0, key, sent: self.local(0), content });
                }
                continue;
            }
            self.spend_all(key);
        }
    }

    /// Spends what replicas have just before a generation ends, and what the server has just afterwards.
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

    fn call(&mut self, replica: usize, key: usize, cost: u64) {
        let local = self.local(replica);
        let give_back = self.random.chance(0.15);
        let reports = self.replicas[replica].pots[key].take_reports(local, give_back);
        let want = self.random.pick(&[0, 1, 8, 64, 1_000]);
        let call = Message { replica, key, sent: local, content: Call { cost, want, birth: self.birth(), reports } };
        if self.mistake == Some(Mistake::ReportedTwice) && self.random.chance(0.3) {
            let content = Call { cost: 0, want: 0, birth: self.birth(), reports: call.content.reports.clone() };
            self.calls.push(Message { replica, key, sent: local, content });
        }
        match self.random.below(10) {
            // Lost on the way.
            0 => {}
            1 | 2 => self.calls.push(call),
            _ => self.serve(call),
        }
    }

    fn deliver_call(&mut self) {
        if !self.calls.is_empty() {
            let at = self.random.below(self.calls.len() as u64) as usize;
            let call = self.calls.swap_remove(at);
            self.serve(call);
        }
    }

    /// Decides a call at the server, and sends the answer.
    fn serve(&mut self, call: Message<Call>) {
        let now = self.server_now();
        let Message { replica, key, sent, content } = call;
        let answer = self.server.decide(&self.policies, self.lease, key, now, &content);
        if answer.admitted && content.cost > 0 {
            self.admit(key, content.cost, false, false);
            self.direct.push((key, content.cost, now));
        }
        let Some(grant) = answer.grant else { return };
        if !self.stamps.contains(&grant.stamps) {
            self.stamps.push(grant.stamps.clone());
        }
        let grant = Message { replica, key, sent, content: grant };
        match self.random.below(10) {
            0 => {}
            1 | 2 => self.grants.push(grant),
            _ => self.receive(grant),
        }
    }

    fn deliver_grant(&mut self) {
        if !self.grants.is_empty() {
            let at = self.random.below(self.grants.len() as u64) as usize;
            let grant = self.grants.swap_remove(at);
            self.receive(grant);
        }
    }

    fn receive(&mut self, message: Message<Grant>) {
        let Message { replica, key, mut sent, content: mut grant } = message;
        match self.mistake {
            Some(Mistake::LifeFromTheAnswer) => sent = self.local(replica),
            Some(Mistake::LifeToTheEnd) => grant.life_us = grant.life_us * 1_000 / 999 + 1,
            _ => {}
        }
        self.replicas[replica].pots[key].add(sent, grant);
    }

    /// Spends many held units at once.
    fn spend_held(&mut self, replica: usize, key: usize) {
        let held = self.replicas[replica].pots[key].held(self.local(replica));
        let units = if self.random.chance(0.5) { held } else { self.random.below(held + 1) };
        for _ in 0..units {
            self.spend(replica, key, 1);
        }
    }

    fn spend(&mut self, replica: usize, key: usize, cost: u64) -> bool {
        let local = self.local(replica);
        let Some(stamps) = self.replicas[replica].pots[key].spend(local, cost).cloned() else {
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
            let cost = if is_old { oracle.leased(now, cost) } else { cost };
            self.outcome.exceeded |= !oracle.admit(now, server_now, cost);
        }
    }

    /// Refunds a decision: into the pot when that is possible, otherwise at the server.
    fn refund(&mut self) {
        let (now, server_now) = (self.now, self.server_now());
        let refunded = if !self.leased.is_empty() && self.random.chance(0.5) {
            let at = self.random.below(self.leased.len() as u64) as usize;
            let (replica, key, cost, spent) = self.leased.swap_remove(at);
            let local = self.local(replica);
            match self.replicas[replica].pots[key].refund(local, cost) {
                None => self.server.refund(&self.policies, self.lease, key, [server_now, spent], cost),
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
            self.server.refund(&self.policies, self.lease, key, times, cost);
            (key, cost)
        } else {
            return;
        };
        for policy in 0..self.policies.len() {
            self.oracles[self.server.place(policy, refunded.0)].refund(now, server_now, refunded.1);
        }
    }

    /// Lets something happen after which more than the bound may be admitted, by a stated number of units.
    fn event(&mut self) {
        self.now += 1;
        let generation = self.generation();
        match self.random.below(6) {
            0 => self.offset += self.random.pick(&[1, generation as i64 / 2, generation as i64, 9 * generation as i64]),
            1 => {
                let most = self.random.pick(&[1, generation / 2, generation, 2 * generation, 9 * generation]);
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
                let policies = (0..count).map(|at| policy_of(&mut self.random, at, self.lease, same[at]));
                let policies: Vec<_> = policies.collect();
                self.restart();
                self.policies = PolicySet::try_new(policies).unwrap_or_else(|error| unreachable!("{error}"));
            }
            _ => {
                let ms = self.random.pick(&[100, 200, 500]);
                let lease = self.lease.generation(Duration::from_millis(ms));
                let policies = self.policies.iter().map(|policy| policy.clone().leased(lease));
                let policies = PolicySet::try_new(policies).unwrap_or_else(|error| unreachable!("{error}"));
                self.restart();
                (self.lease, self.policies) = (lease, policies);
            }
        }
        self.restart();
    }

    /// Begins the bounds anew, and checks how many units replicas hold beside them: at most the share of the burst for
    /// each event whose grants are alive.
    fn restart(&mut self) {
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
    fn spendable(&self, key: usize) -> u64 {
        let held = self.replicas.iter().enumerate().map(|(at, replica)| replica.pots[key].held(self.local(at)));
        let alive = |grant: &&Message<Grant>| {
            let life = grant.content.life_us - grant.content.life_us.div_ceil(1_000);
            grant.key == key && self.local(grant.replica) < grant.sent + life
        };
        let on_the_way = self.grants.iter().filter(alive).map(|grant| grant.content.units);
        held.sum::<u64>() + on_the_way.sum::<u64>()
    }
}

fn policy(random: &mut Random, at: usize, lease: Lease) -> Policy {
    use tollgate::Algorithm as A;
    let algorithms = [
        A::TokenBucket,
        A::TokenBucket,
        A::FixedWindow,
        A::WindowFromFirstHit,
        A::SlidingBuckets { buckets: 4 },
        A::SlidingBuckets { buckets: 1 },
        A::SlidingLog,
        A::SlidingWindow,
        A::IntervalBucket,
    ];
    let algorithm = random.pick(&algorithms);
    policy_of(random, at, lease, algorithm)
}

fn policy_of(random: &mut Random, at: usize, lease: Lease, algorithm: tollgate::Algorithm) -> Policy {
    use tollgate::Algorithm as A;
    let amount = random.pick(&[32, 40, 96]);
    let period = Duration::from_micros(random.pick(&[50_000, 100_000, 350_001, 1_000_000]));
    let mut quota = Quota::new(amount, period);
    if matches!(algorithm, A::TokenBucket | A::IntervalBucket) {
        quota = quota.with_burst(random.pick(&[32, 64]));
    }
    let policy = Policy::try_new(if at == 0 { "a" } else { "b" }, algorithm, quota);
    policy.and_then(|policy| policy.try_leased(lease)).unwrap_or_else(|error| unreachable!("{error}"))
}
