//! A model of the schedules: the pure functions of the server and of the replicas, with crashes,
//! stalls, calls that are lost, late or repeated, replies that are lost or late, clocks that
//! differ, and servers that lose their state.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use tollgate::{
    Key,
    permits::Concurrency,
    store::{PermitGrant, PermitOutcome},
    testing::{self, PermitState},
};
use tollgate_test_support::{Dice, START_US, stream};

/// The permits of a replica: the file of the library.
#[allow(dead_code, reason = "the library uses what is left over here")]
#[path = "../../../crates/tollgate-core/src/limiter/permits/pool.rs"]
mod pool;

use pool::{Granted, PermitPool, PoolCall, PoolRules};

const LIFE_US: u64 = 1_000_000;
const MOST: u64 = 8;
/// In a full run.
const RUNS: u64 = 1_400;
const STEPS: u64 = 400;

static POLICY: LazyLock<Concurrency> = LazyLock::new(|| Concurrency::new("model", 1));
static KEY: LazyLock<Key> = LazyLock::new(|| Key::new("key"));

struct World {
    dice: Dice,
    now_us: u64,
    /// The time by which the clock of the server is ahead.
    ahead_us: i64,
    server: PermitState,
    backup: PermitState,
    replicas: Vec<Replica>,
    network: Vec<Message>,
    names: u64,
    most: u32,
    /// Servers lose their state, and their clocks jump forward.
    is_faulty: bool,
    fault_us: u64,
    /// The number of times that the server was looked at.
    looks: u64,
    /// The permits that the server held when it was looked at last.
    held: u64,
    /// For each limit, the look at which the server came to hold more than it.
    risen: [u64; MOST as usize + 1],
    grants: u64,
    lost: u64,
    /// The callers that found no permit because the limit was lowered.
    withheld: u64,
}

/// A replica: its pool, and the permits that it has handed out.
struct Replica {
    name: u64,
    rules: PoolRules,
    pool: PermitPool,
    permits: Vec<Arc<Granted>>,
    limit: u32,
    number: u64,
    /// The call that is under way, by its number.
    call: Option<(u64, PoolCall)>,
    /// The look at the server by which the last reply was made.
    answered: u64,
    /// The clock runs faster or slower by this many parts of 10 000, and from its own start.
    skew: i64,
    offset_us: u64,
}

/// A message in the network.
#[derive(Clone, Copy)]
enum Message {
    Call {
        name: u64,
        number: u64,
        call: PoolCall,
        is_pooled: bool,
    },
    /// `look` is the look at the server by which it was made.
    Reply {
        name: u64,
        number: u64,
        grant: PermitGrant,
        look: u64,
    },
}

impl Replica {
    fn now_us(&self, now_us: u64) -> u64 {
        let passed = (now_us - START_US) as i64;
        self.offset_us + (passed + passed * self.skew / 10_000) as u64
    }

    fn live(&self, now_us: u64) -> u32 {
        let now_us = self.now_us(now_us);
        self.permits
            .iter()
            .filter(|granted| !granted.is_lost(now_us))
            .count() as u32
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let most = 1 + dice.below(MOST) as u32;
        let mut world = Self {
            is_faulty: seed % 2 == 1,
            dice,
            now_us: START_US,
            ahead_us: 0,
            server: PermitState::default(),
            backup: PermitState::default(),
            replicas: Vec::new(),
            network: Vec::new(),
            names: 0,
            most,
            fault_us: 0,
            looks: 0,
            held: 0,
            risen: [0; MOST as usize + 1],
            grants: 0,
            lost: 0,
            withheld: 0,
        };
        for _ in 0..3 {
            let replica = world.replica();
            world.replicas.push(replica);
        }
        world
    }

    fn replica(&mut self) -> Replica {
        self.names += 1;
        let is_pooled = self.dice.below(3) > 0;
        Replica {
            name: self.names,
            rules: PoolRules {
                is_pooled,
                life_us: LIFE_US,
            },
            pool: PermitPool::default(),
            permits: Vec::new(),
            limit: self.most,
            number: 0,
            call: None,
            answered: 0,
            skew: self.dice.below(9) as i64 - 4,
            offset_us: 1 + self.dice.below(1_000_000_000_000),
        }
    }

    fn server_us(&self) -> u64 {
        self.now_us.saturating_add_signed(self.ahead_us)
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..=4 => self.pass_time(),
            5..=8 => self.acquire(),
            9..=11 => self.give_back(),
            12..=16 => self.deliver(),
            17 => self.renew(),
            18 => self.give_up(),
            _ => self.disturb(),
        }
        self.laws();
    }

    fn pass_time(&mut self) {
        self.now_us += match self.dice.below(8) {
            0 => 0,
            1 => 1,
            2 => self.dice.below(LIFE_US / 3),
            // A stall of everything that is longer than a life.
            3 if self.dice.below(8) == 0 => LIFE_US + self.dice.below(LIFE_US),
            // Around the instant at which a lease ends on the clock of its replica or at the
            // server.
            4 => LIFE_US / 1_000 * 999 + self.dice.below(3),
            5 => LIFE_US / 1_000 - 1 + self.dice.below(3),
            _ => self.dice.below(LIFE_US / 20),
        };
    }

    fn at(&mut self) -> usize {
        self.dice.below(3) as usize
    }

    fn acquire(&mut self) {
        let at = self.at();
        let replica = &mut self.replicas[at];
        let now_us = replica.now_us(self.now_us);
        match replica.pool.take_spare(now_us, replica.limit) {
            Some(granted) => {
                replica.permits.push(granted);
                self.law_p2(at);
            }
            None => {
                replica.pool.demand = (replica.pool.demand + 1).min(4);
                self.call(at);
            }
        }
    }

    fn call(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        if replica.call.is_some() {
            return;
        }
        replica.number += 1;
        let call = replica
            .pool
            .begin(replica.now_us(self.now_us), replica.limit, replica.rules);
        replica.call = Some((replica.number, call));
        self.network.push(Message::Call {
            name: replica.name,
            number: replica.number,
            call,
            is_pooled: replica.rules.is_pooled,
        });
    }

    fn give_back(&mut self) {
        let at = self.at();
        let replica = &mut self.replicas[at];
        if let Some(granted) = replica.permits.pop() {
            replica.pool.give_back(&granted);
            if replica.pool.has_surplus(replica.rules) {
                self.call(at);
            }
        }
    }

    fn renew(&mut self) {
        let at = self.at();
        let replica = &self.replicas[at];
        if replica
            .pool
            .is_due(replica.now_us(self.now_us), replica.rules)
        {
            self.call(at);
        }
    }

    /// Delivers any message: the order in the network is not kept, and a call may arrive twice.
    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let at = self.dice.below(self.network.len() as u64) as usize;
        let message = self.network[at];
        if self.dice.below(12) > 0 {
            self.network.swap_remove(at);
        }
        match message {
            Message::Call {
                name,
                number,
                call,
                is_pooled,
            } => {
                let grant = self.decide(name, number, call, is_pooled);
                if self.dice.below(8) > 0 {
                    self.network.push(Message::Reply {
                        name,
                        number,
                        grant,
                        look: self.looks,
                    });
                }
            }
            Message::Reply {
                name,
                number,
                grant,
                look,
            } => {
                if let Some(at) = self
                    .replicas
                    .iter()
                    .position(|replica| replica.name == name)
                {
                    self.receive(at, number, &grant, look);
                }
            }
        }
    }

    fn decide(&mut self, replica: u64, number: u64, call: PoolCall, waits: bool) -> PermitGrant {
        let mut request = testing::permit_request(&POLICY, &KEY);
        (request.replica, request.number, request.limit) = (replica, number, call.limit);
        (request.kept, request.used, request.needed, request.extra) =
            (call.kept, call.used, call.needed, call.extra);
        (request.waits, request.life) = (waits, Duration::from_micros(LIFE_US));
        let before = self.server.clone();
        let grant = self.server.decide(self.server_us(), &request);
        self.look();
        let was_held = before.held(replica);
        if grant.outcome != PermitOutcome::Overtaken && u64::from(grant.held) > was_held {
            assert!(
                grant.in_flight <= call.limit.into(),
                "granted above the limit: {request:?} {grant:?}"
            );
        }
        let is_above =
            grant.outcome != PermitOutcome::Overtaken && grant.in_flight > call.limit.into();
        assert!(
            !is_above || grant.held <= call.kept,
            "idle permits are left above the limit: {request:?} {grant:?}"
        );
        self.withheld += u64::from(is_above && grant.held < call.needed);
        // A lost state may be restored from an older copy.
        if self.dice.below(4) == 0 {
            self.backup = before;
        }
        grant
    }

    fn receive(&mut self, at: usize, number: u64, grant: &PermitGrant, look: u64) {
        let replica = &mut self.replicas[at];
        let Some((_, call)) = replica.call.take_if(|(current, _)| *current == number) else {
            return;
        };
        let now_us = replica.now_us(self.now_us);
        replica.pool.end(call, grant, now_us, replica.rules);
        replica.answered = look;
        self.grants += u64::from(grant.outcome == PermitOutcome::Decided && grant.held > 0);
        self.lost += u64::from(grant.outcome == PermitOutcome::Lost);
        while self.replicas[at].pool.demand > 0
            && let limit = self.replicas[at].limit
            && let Some(granted) = self.replicas[at].pool.take(now_us, limit)
        {
            self.replicas[at].permits.push(granted);
            self.replicas[at].pool.demand -= 1;
            self.law_p2(at);
        }
        let replica = &mut self.replicas[at];
        // Callers that were denied go away, or wait and ask again.
        if self.dice.below(2) == 0 {
            replica.pool.demand = 0;
        } else if replica.pool.demand > 0 {
            self.call(at);
        }
    }

    /// Gives up the call of a replica. The call may still arrive.
    fn give_up(&mut self) {
        let at = self.at();
        let replica = &mut self.replicas[at];
        if replica.call.take().is_some() {
            replica
                .pool
                .fail(replica.now_us(self.now_us), replica.rules);
            replica.pool.demand = 0;
        }
    }

    fn disturb(&mut self) {
        let at = self.at();
        match self.dice.below(if self.is_faulty { 5 } else { 8 }) {
            // A crash: the process comes back with another name.
            0 => self.replicas[at] = self.replica(),
            // Messages are lost.
            1 if !self.network.is_empty() => {
                let lost = self.dice.below(self.network.len() as u64) as usize;
                self.network.swap_remove(lost);
            }
            // The clock of the server goes back.
            2 => self.ahead_us -= self.dice.below(3 * LIFE_US) as i64,
            // Another limit, which the replicas learn one after the other.
            3 => self.replicas[at].limit = 1 + self.dice.below(self.most.into()) as u32,
            4 if self.is_faulty && self.now_us > self.fault_us + 3 * LIFE_US => {
                self.fault_us = self.now_us;
                match self.dice.below(3) {
                    0 => self.server = PermitState::default(),
                    1 => self.server = self.backup.clone(),
                    _ => self.ahead_us += self.dice.below(3 * LIFE_US) as i64,
                }
            }
            _ => {}
        }
    }

    /// Looks at how many permits the server holds.
    fn look(&mut self) {
        let held = self.server.held_by_all(self.server_us());
        self.looks += 1;
        for limit in self.held..held {
            self.risen[limit as usize] = self.looks;
        }
        self.held = held;
    }

    /// A replica that has had an answer since more permits are held than its limit hands out none.
    fn law_p2(&mut self, at: usize) {
        self.look();
        let Replica {
            limit, answered, ..
        } = self.replicas[at];
        let has_learned = answered >= self.risen[limit as usize];
        assert!(
            self.held <= limit.into() || !has_learned,
            "a permit is handed out, {} of {limit} are held",
            self.held
        );
    }

    fn laws(&mut self) {
        self.look();
        let in_flight: u32 = self
            .replicas
            .iter()
            .map(|replica| replica.live(self.now_us))
            .sum();
        let is_disturbed = self.fault_us > 0 && self.now_us <= self.fault_us + LIFE_US;
        let most = if is_disturbed {
            2 * self.most
        } else {
            self.most
        };
        assert!(in_flight <= most, "{in_flight} in flight, {most} allowed");
        if self.fault_us == 0 {
            for replica in &self.replicas {
                let (mine, held) = (
                    replica.pool.capacity(replica.now_us(self.now_us)),
                    self.server.held(replica.name),
                );
                assert!(
                    u64::from(mine) <= held,
                    "a replica counts {mine}, the server {held}"
                );
            }
        }
    }

    /// Ends all disturbances and all work. Then nothing may be left, and all permits can be taken.
    fn calm(&mut self) {
        self.network.clear();
        for at in 0..3 {
            let replica = &mut self.replicas[at];
            replica.limit = self.most;
            if replica.call.take().is_some() {
                replica
                    .pool
                    .fail(replica.now_us(self.now_us), replica.rules);
            }
            replica.pool.demand = 0;
            for granted in std::mem::take(&mut replica.permits) {
                replica.pool.give_back(&granted);
            }
        }
        // A clock that went back prolongs permits by a life, counted from the next call.
        self.replicas[0].pool.demand = 1;
        self.exchange(0);
        while let Some(granted) = self.replicas[0].permits.pop() {
            self.replicas[0].pool.give_back(&granted);
        }
        for _ in 0..12 {
            self.now_us += LIFE_US / 4;
            for at in 0..3 {
                let replica = &self.replicas[at];
                if replica
                    .pool
                    .is_due(replica.now_us(self.now_us), replica.rules)
                {
                    self.exchange(at);
                }
            }
            self.laws();
        }
        for (at, replica) in self.replicas.iter().enumerate() {
            assert!(
                replica.pool.is_idle(replica.now_us(self.now_us)),
                "replica {at} is not idle: {:?}",
                replica.pool
            );
        }
        assert!(
            self.server.is_lapsed(self.server_us()),
            "permits are left: {:?}",
            self.server
        );
        for count in 0..self.most {
            let at = (count % 3) as usize;
            self.replicas[at].rules.is_pooled = false;
            self.replicas[at].pool.demand = 1;
            self.exchange(at);
            self.laws();
        }
        let in_flight: u32 = self
            .replicas
            .iter()
            .map(|replica| replica.live(self.now_us))
            .sum();
        assert_eq!(in_flight, self.most, "all permits can be taken");
    }

    /// Makes a call and receives its reply.
    fn exchange(&mut self, at: usize) {
        self.call(at);
        while let Some(message) = self.network.pop() {
            match message {
                Message::Call {
                    name,
                    number,
                    call,
                    is_pooled,
                } => {
                    let grant = self.decide(name, number, call, is_pooled);
                    self.network.push(Message::Reply {
                        name,
                        number,
                        grant,
                        look: self.looks,
                    });
                }
                Message::Reply {
                    number,
                    grant,
                    look,
                    ..
                } => {
                    self.receive(at, number, &grant, look);
                    self.replicas[at].pool.demand = 0;
                }
            }
        }
    }
}

#[test]
fn no_schedule_holds_more_than_the_limit_and_every_permit_comes_back() {
    let (mut grants, mut lost, mut withheld) = (0, 0, 0);
    let runs = stream::part_of(RUNS);
    for seed in 0..runs {
        let mut world = World::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                world.step();
            }
            world.calm();
        }));
        assert!(outcome.is_ok(), "seed {seed}");
        (grants, lost, withheld) = (
            grants + world.grants,
            lost + world.lost,
            withheld + world.withheld,
        );
    }
    // The schedules reach what they are about.
    assert!(
        grants > 14 * runs && 28 * lost > runs && 2 * withheld > runs,
        "{grants} grants, {lost} losses, {withheld} withheld in {runs} runs"
    );
}
