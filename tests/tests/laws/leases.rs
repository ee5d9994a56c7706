//! Leases under random schedules: replicas crash, stall and sleep, calls and answers are lost, late
//! and out of order, the clock of the server steps, quotas change, and decisions are refunded. No
//! schedule admits more than the bound of the algorithm.

use std::{array, collections::VecDeque, mem, slice, time::Duration};

use tollgate::{
    Algorithm, Lease, Policy, PolicySet, Quota,
    testing::{Grant, HeldUnits, Report, Stamp, Stamps},
};
use tollgate_test_support::{
    Dice,
    calls::Call,
    leases::{Account, Answer, step},
    stream,
};

const REPLICAS: usize = 3;

/// The time at which schedules begin: the start of a generation and of a window.
const BEGIN: u64 = 1_680_000_000_000_000;

/// The most that the clock of a replica is slow or fast, in millionths.
const DRIFT: u64 = 900;

/// The time after an event in which grants from before may be alive: the longest generation, twice.
const AFTER_EVENT: u64 = 1_001_000;

/// Lines of the rule that are left out or wrong. Those of the script are in `scripts/leases.rs`.
const MISTAKES: [&str; 8] = [
    "units that lapse are not charged",
    "reported units are not charged",
    "a grant is not added to the outstanding units",
    "a report for a lost state counts",
    "a report is sent twice",
    "a grant lives for one more generation",
    "the life of a grant begins with the answer",
    "the clock of a replica stops in its sleep",
];

#[test]
fn no_schedule_of_leases_admits_more_than_the_bound() {
    let (mut admitted, mut leased) = (0, 0);
    for seed in 0..stream::part_of(20_000) {
        let world = World::run(seed, "");
        assert!(!world.is_exceeded, "seed {seed} exceeds a bound");
        (admitted, leased) = (admitted + world.admitted, leased + world.leased);
    }
    assert!(leased > admitted / 20, "{leased} of {admitted} were leased");
}

#[test]
fn mistakes_in_the_rule_of_leases_exceed_the_bound() {
    for mistake in MISTAKES {
        let is_found = (0..20_000).any(|seed| World::run(seed, mistake).is_exceeded);
        assert!(is_found, "no schedule finds that {mistake}");
    }
}

/// A decision of one window is refunded in the next one, after its unit was reported.
#[test]
fn a_refund_of_a_reported_unit_gives_none_to_a_newer_window() {
    let lease = Lease::new().generation(Duration::from_millis(500)).share(1);
    let policy = Policy::fixed_window("a", Quota::per_second(40)).leased(lease);
    let mut account = Account::new(&policy, lease, BEGIN);
    let serve = |account: &mut Account, now, call: Call| {
        account.advance(&policy, &policy, lease, now);
        let policies = PolicySet::from(policy.clone());
        step(slice::from_mut(account), &policies, now, &call)
    };
    let (mut units, at) = (HeldUnits::default(), |ms: u64| BEGIN + ms * 1_000);
    let asks = Call {
        cost: 1,
        want: 8,
        birth: 1,
        ..Call::default()
    };
    let grant = serve(&mut account, at(900), asks).grant;
    units.add(at(900), grant.expect("eight units"));
    assert!(units.spend(at(900), at(900), 1).is_some());
    let reports = Call {
        reports: units.take_reports(at(950), false),
        ..Call::default()
    };
    assert!(serve(&mut account, at(950), reports).written);

    assert!(units.spend(at(1_100), at(1_100), 1).is_some());
    if units.refund(at(1_200), at(900), 1).is_none() {
        account.advance(&policy, &policy, lease, at(1_200));
        account.refund(&policy, at(1_200), at(900), 1);
    }
    let mut admitted = 1;
    while units.spend(at(1_200), at(1_200), 1).is_some() {
        admitted += 1;
    }
    let one = Call {
        cost: 1,
        ..Call::default()
    };
    while serve(&mut account, at(1_200), one.clone()).admitted {
        admitted += 1;
    }
    assert_eq!(admitted, 40, "admitted in the second window");
}

#[derive(Default)]
struct Replica {
    units: HeldUnits,
    /// The speed of its clock: millionths more or less.
    drift: i64,
    /// The time that a clock lost that stops while the machine is suspended.
    slept: u64,
    asleep_until: u64,
}

/// A call or an answer on its way, with the replica that has sent the call, and when.
struct Message<T> {
    replica: usize,
    sent: u64,
    content: T,
}

/// A decision that may be refunded: by a replica, or at the server.
struct Spent {
    replica: Option<usize>,
    cost: u64,
    time: u64,
    /// The time by the clock of the server.
    at: u64,
    /// It was made before the last event, or spent units from before.
    is_old: bool,
}

struct World {
    dice: Dice,
    mistake: &'static str,
    now: u64,
    /// The clock of the server is ahead by this.
    ahead: i64,
    lease: Lease,
    policies: PolicySet,
    /// The state of each policy at the server, and the policy that wrote it.
    accounts: Vec<Option<(Account, Policy)>>,
    bounds: Vec<Bound>,
    replicas: [Replica; REPLICAS],
    calls: Vec<Message<Call>>,
    grants: Vec<Message<Grant>>,
    spent: Vec<Spent>,
    has_refunds: bool,
    has_events: bool,
    /// The times of events whose grants may still be alive.
    events: Vec<u64>,
    /// The stamps of all grants, and of those from before the last event.
    stamps: Vec<Stamps>,
    old_stamps: Vec<Stamps>,
    admitted: u64,
    leased: u64,
    is_exceeded: bool,
}

impl World {
    /// Runs the schedule of a seed, until it exceeds a bound.
    fn run(seed: u64, mistake: &'static str) -> Self {
        let mut world = Self::new(seed, mistake);
        for _ in 0..120 {
            world.act();
            if world.is_exceeded {
                break;
            }
        }
        world
    }

    fn new(seed: u64, mistake: &'static str) -> Self {
        let mut dice = Dice::new(seed);
        let lease = lease(&mut dice);
        let names: &[_] = if dice.below(4) == 0 {
            &["a", "b"]
        } else {
            &["a"]
        };
        let policies = names.iter().map(|name| {
            let algorithm = dice.pick(&ALGORITHMS);
            policy(&mut dice, name, algorithm, lease)
        });
        let policies = PolicySet::try_new(policies.collect::<Vec<_>>()).expect("a set");
        Self {
            mistake,
            now: BEGIN,
            ahead: 0,
            lease,
            accounts: vec![None; policies.len()],
            bounds: policies
                .iter()
                .map(|policy| Bound::new(policy, 0))
                .collect(),
            policies,
            replicas: array::from_fn(|_| Replica {
                drift: dice.pick(&[0, DRIFT as i64, -(DRIFT as i64)]),
                ..Replica::default()
            }),
            calls: Vec::new(),
            grants: Vec::new(),
            spent: Vec::new(),
            has_refunds: dice.below(4) == 0,
            has_events: dice.below(5) < 2,
            events: Vec::new(),
            stamps: Vec::new(),
            old_stamps: Vec::new(),
            admitted: 0,
            leased: 0,
            is_exceeded: false,
            dice,
        }
    }

    fn act(&mut self) {
        let replica = self.dice.below(REPLICAS as u64) as usize;
        let is_awake = self.now >= self.replicas[replica].asleep_until;
        match self.dice.below(100) {
            0..32 if is_awake => self.ask(replica),
            32..48 if is_awake => self.spend_some(replica),
            48..51 => self.rush(),
            51 => self.rush_at_the_end(),
            52..58 => {
                if let Some(call) = any(&mut self.dice, &mut self.calls) {
                    self.serve(call);
                }
            }
            58..62 => {
                if let Some(grant) = any(&mut self.dice, &mut self.grants) {
                    self.receive(grant);
                }
            }
            62..64 => drop(any(&mut self.dice, &mut self.calls)),
            64..66 => self.replicas[replica].units = HeldUnits::default(),
            66..68 => {
                let time = self.dice.below(3 * self.generation());
                self.replicas[replica].asleep_until = self.now + time;
                if self.mistake == "the clock of a replica stops in its sleep" {
                    self.replicas[replica].slept += time;
                }
            }
            68..72 if self.has_refunds => self.refund(),
            72..74 if self.has_events => self.event(),
            _ => self.now += self.pause(),
        }
    }

    fn generation(&self) -> u64 {
        self.lease.length().as_micros() as u64
    }

    /// Returns a time to the next step: often that to a time at which something ends.
    fn pause(&mut self) -> u64 {
        let quota = self.policies.iter().last().expect("a policy").quota();
        let (period, generation) = (quota.period().as_micros() as u64, self.generation());
        let unit = period / quota.amount();
        let boundary = generation - self.server_now() % generation;
        let edge = period - self.server_now() % period;
        let slack = self.dice.below(2 * generation * DRIFT / 1_000_000 + 2);
        let of_quota = [
            0,
            1,
            unit,
            unit + 1,
            3 * unit,
            period / 3,
            period,
            edge - 1,
            edge,
        ];
        let of_lease = [0, 1, slack, generation, 2 * generation].map(|after| boundary + after);
        match self.dice.below(3) {
            0 => self.dice.pick(&of_quota),
            1 => self.dice.pick(&of_lease),
            _ => slack,
        }
    }

    fn server_now(&self) -> u64 {
        self.now.saturating_add_signed(self.ahead)
    }

    /// Returns the clock of a replica.
    fn local(&self, replica: usize) -> u64 {
        let replica = &self.replicas[replica];
        let gained = (self.now - BEGIN) as i64 * replica.drift / 1_000_000;
        self.now.saturating_add_signed(gained) - replica.slept
    }

    /// Checks: by the held units, or by a call with reports.
    fn ask(&mut self, replica: usize) {
        let cost = self.dice.pick(&[1, 1, 1, 2, 3, 0]);
        if cost > 0 && self.dice.below(2) == 0 && self.spend(replica, cost) {
            return;
        }
        let (sent, gives_back) = (self.local(replica), self.dice.below(7) == 0);
        let reports = self.replicas[replica].units.take_reports(sent, gives_back);
        let want = self.dice.pick(&[0, 1, 8, 64, 1_000]);
        if self.mistake == "a report is sent twice" {
            let again = self.call(replica, 0, 0, reports.clone());
            self.calls.push(again);
        }
        let call = self.call(replica, cost, want, reports);
        match self.dice.below(10) {
            // Lost on the way.
            0 => {}
            1 | 2 => self.calls.push(call),
            _ => self.serve(call),
        }
    }

    fn call(&mut self, from: usize, cost: u64, want: u64, reports: Vec<Report>) -> Message<Call> {
        let birth = 1 + self.dice.below(1 << 53);
        Message {
            replica: from,
            sent: self.local(from),
            content: Call {
                cost,
                want,
                birth,
                reports,
            },
        }
    }

    /// Decides a call at the server, and sends the answer.
    fn serve(&mut self, call: Message<Call>) {
        let cost = call.content.cost;
        let answer = self.decide(call.content);
        if answer.admitted && cost > 0 {
            self.admit(cost, None, false);
        }
        let Some(content) = answer.grant else { return };
        self.stamps.push(content.stamps.clone());
        let grant = Message {
            replica: call.replica,
            sent: call.sent,
            content,
        };
        match self.dice.below(10) {
            0 => {}
            1 | 2 => self.grants.push(grant),
            _ => self.receive(grant),
        }
    }

    fn receive(&mut self, grant: Message<Grant>) {
        let sent = match self.mistake {
            "the life of a grant begins with the answer" => self.local(grant.replica),
            _ => grant.sent,
        };
        self.replicas[grant.replica].units.add(sent, grant.content);
    }

    /// Spends at one instant what the server and all replicas have: the worst that can happen.
    fn rush(&mut self) {
        let is_server_first = self.dice.below(2) == 0;
        if !is_server_first {
            self.spend_all();
        }
        for cost in [32, 32, 16, 8, 4, 2, 1] {
            let call = self.call(0, cost, 0, Vec::new());
            self.serve(call);
        }
        self.spend_all();
    }

    /// Spends what replicas have just before a generation ends, and what the server has just
    /// afterwards.
    fn rush_at_the_end(&mut self) {
        // The longest life of a grant ends a little earlier.
        let early = self.dice.pick(&[1, self.generation() / 400]);
        let boundary = self.generation() - self.server_now() % self.generation();
        self.now += boundary.saturating_sub(early);
        self.spend_all();
        self.now += early + 1;
        self.rush();
    }

    fn spend_all(&mut self) {
        for replica in 0..REPLICAS {
            if self.now >= self.replicas[replica].asleep_until {
                while self.spend(replica, 1) {}
            }
        }
    }

    fn spend_some(&mut self, replica: usize) {
        let held = self.replicas[replica].units.held(self.local(replica));
        for _ in self.dice.below(held + 1)..=held {
            self.spend(replica, 1);
        }
    }

    /// Spends held units, if there are so many.
    fn spend(&mut self, replica: usize, cost: u64) -> bool {
        let (local, at) = (self.local(replica), self.server_now());
        let Some(stamps) = self.replicas[replica].units.spend(local, at, cost) else {
            return false;
        };
        let is_old = self.old_stamps.contains(stamps);
        if is_old {
            let bounds = self.bounds.iter_mut();
            bounds.for_each(|bound| bound.leave_out(self.now, cost));
        }
        self.leased += cost;
        self.admit(cost, Some(replica), is_old);
        true
    }

    /// Counts an admission, and compares it with the bounds.
    fn admit(&mut self, cost: u64, replica: Option<usize>, is_old: bool) {
        let (time, at) = (self.now, self.server_now());
        self.admitted += cost;
        for bound in &mut self.bounds {
            self.is_exceeded |= !bound.count(time, at, cost as i64);
        }
        self.spent.push(Spent {
            replica,
            cost,
            time,
            at,
            is_old,
        });
    }

    /// Refunds a decision: into the held units when that is possible, otherwise at the server.
    fn refund(&mut self) {
        let (now, server_now) = (self.now, self.server_now());
        let Some(spent) = any(&mut self.dice, &mut self.spent) else {
            return;
        };
        let is_held = spent.replica.is_some_and(|replica| {
            let local = self.local(replica);
            let units = &mut self.replicas[replica].units;
            let stamps = units.refund(local, spent.at, spent.cost);
            if stamps.is_some_and(|stamps| self.old_stamps.contains(stamps)) {
                // The unit was outstanding at the event, and can be spent again.
                self.bounds
                    .iter_mut()
                    .for_each(|bound| bound.old += spent.cost);
            }
            stamps.is_some()
        });
        for (at, policy) in self.policies.iter().enumerate() {
            if !is_held && let Some((account, wrote)) = &mut self.accounts[at] {
                account.advance(policy, wrote, self.lease, server_now);
                account.refund(policy, server_now, spent.at, spent.cost);
                *wrote = policy.clone();
            }
            self.bounds[at].take_back(now, server_now, &spent);
        }
    }

    /// Lets something happen after which more than the bound may be admitted, by a stated number of
    /// units.
    fn event(&mut self) {
        self.now += 1;
        let generation = self.generation();
        let time = self
            .dice
            .pick(&[1, generation / 2, generation, 9 * generation]);
        match self.dice.below(4) {
            0 => self.ahead += time as i64,
            1 => self.ahead -= 1 + self.dice.below(time) as i64,
            2 => self.accounts.fill(None),
            _ => {
                // The share of a policy bounds what was out under it.
                self.restart();
                self.lease = lease(&mut self.dice);
                let (dice, lease) = (&mut self.dice, self.lease);
                let policies = self.policies.iter();
                let policies = policies.map(|old| policy(dice, old.name(), old.algorithm(), lease));
                self.policies = PolicySet::try_new(policies.collect::<Vec<_>>()).expect("a set");
            }
        }
        self.restart();
    }

    /// Begins the bounds anew, and checks how many units replicas hold beside them: at most the
    /// share of the burst for each event whose grants are alive.
    fn restart(&mut self) {
        let now = self.now;
        self.old_stamps.clone_from(&self.stamps);
        self.spent.iter_mut().for_each(|spent| spent.is_old = true);
        self.events.push(now);
        self.events.retain(|at| at + AFTER_EVENT > now);
        let (events, held) = (self.events.len() as u64, self.spendable());
        for (policy, bound) in self.policies.iter().zip(&mut self.bounds) {
            let quota = policy.quota();
            self.is_exceeded |= events == 1 && held > self.lease.most(&quota);
            self.is_exceeded |= held > quota.burst().max(96) * events;
            *bound = Bound {
                old: held,
                ..Bound::new(policy, now + AFTER_EVENT)
            };
        }
    }

    /// Returns the units that replicas may spend.
    fn spendable(&self) -> u64 {
        let held = (0..REPLICAS).map(|at| self.replicas[at].units.held(self.local(at)));
        let alive = self.grants.iter().filter(|grant| {
            let life = grant.content.life_us - grant.content.life_us.div_ceil(1_000);
            self.local(grant.replica) < grant.sent + life
        });
        held.sum::<u64>() + alive.map(|grant| grant.content.units).sum::<u64>()
    }

    /// Decides a call at the server.
    fn decide(&mut self, mut call: Call) -> Answer {
        let now = self.server_now();
        let (mut accounts, mut is_mended) = (Vec::new(), false);
        for (policy, stored) in self.policies.iter().zip(&self.accounts) {
            let alive = |(account, wrote): &(Account, Policy)| now < account.fresh_at(wrote);
            let (mut account, wrote) = stored
                .clone()
                .filter(alive)
                .unwrap_or_else(|| (Account::new(policy, self.lease, now), policy.clone()));
            let current = account.stamp();
            if self.mistake == "units that lapse are not charged"
                && now >= (current.generation + 1) * self.generation()
            {
                let generation = current.generation.saturating_sub(1);
                let previous = Stamp {
                    generation,
                    ..current
                };
                account.report(policy, now, previous, 0, u64::MAX);
            }
            is_mended |= account.advance(policy, &wrote, self.lease, now);
            accounts.push(account);
        }
        for report in &mut call.reports {
            match self.mistake {
                "reported units are not charged" => report.returned += mem::take(&mut report.spent),
                "a report for a lost state counts" => {
                    let births = accounts.iter().map(|account| account.stamp().birth);
                    let stamps = report.stamps.iter_mut();
                    stamps
                        .zip(births)
                        .for_each(|(stamp, birth)| stamp.birth = birth);
                }
                _ => {}
            }
        }
        let mut answer = step(&mut accounts, &self.policies, now, &call);
        if let Some(grant) = &mut answer.grant {
            if self.mistake == "a grant lives for one more generation" {
                grant.life_us += self.generation();
            }
            if self.mistake == "a grant is not added to the outstanding units" {
                for (account, policy) in accounts.iter_mut().zip(self.policies.iter()) {
                    account.report(policy, now, account.stamp(), 0, grant.units);
                }
            }
        }
        if answer.written || is_mended {
            let stored = accounts.into_iter().zip(self.policies.iter().cloned());
            self.accounts = stored.map(Some).collect();
        }
        answer
    }
}

const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::TokenBucket,
    Algorithm::TokenBucket,
    Algorithm::FixedWindow,
    Algorithm::WindowFromFirstHit,
    Algorithm::SlidingBuckets { buckets: 4 },
    Algorithm::SlidingBuckets { buckets: 1 },
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::IntervalBucket,
];

fn lease(dice: &mut Dice) -> Lease {
    let lease = Lease::new().generation(Duration::from_millis(dice.pick(&[100, 200, 500])));
    lease.share(dice.pick(&[1, 1, 2, 4]))
}

fn policy(dice: &mut Dice, name: &str, algorithm: Algorithm, lease: Lease) -> Policy {
    let period = Duration::from_micros(dice.pick(&[50_000, 100_000, 350_001, 1_000_000]));
    let mut quota = Quota::new(dice.pick(&[32, 40, 96]), period);
    if matches!(
        algorithm,
        Algorithm::TokenBucket | Algorithm::IntervalBucket
    ) {
        quota = quota.with_burst(dice.pick(&[32, 64]));
    }
    Policy::try_new(name, algorithm, quota)
        .and_then(|policy| policy.try_leased(lease))
        .expect("a policy that can be leased")
}

/// Takes out one of the items, if there are any.
fn any<T>(dice: &mut Dice, items: &mut Vec<T>) -> Option<T> {
    let at = dice.below(items.len().max(1) as u64) as usize;
    (at < items.len()).then(|| items.swap_remove(at))
}

/// The admissions of one policy, and the bound of its algorithm, written separately from it.
struct Bound {
    policy: Policy,
    /// The units in the bucket, times the period.
    level: i128,
    last: u64,
    /// The admitted units of the last period by their time, newest last. Refunded units are
    /// negative.
    recent: VecDeque<(u64, i64)>,
    /// The current window of the server's clock, and its units.
    window: (u64, i64),
    /// The units that replicas held at the last event and may spend beside the bound, and until
    /// when.
    old: u64,
    old_until: u64,
    /// The units of the next admission that do not count.
    left_out: u64,
}

impl Bound {
    fn new(policy: &Policy, old_until: u64) -> Self {
        Self {
            policy: policy.clone(),
            level: 0,
            last: 0,
            recent: VecDeque::new(),
            window: (0, 0),
            old: 0,
            old_until,
            left_out: 0,
        }
    }

    /// Leaves out units of the next admission that were held at the last event.
    fn leave_out(&mut self, now: u64, units: u64) {
        if now < self.old_until {
            self.left_out = units.min(self.old);
            self.old -= self.left_out;
        }
    }

    /// Takes back refunded units, as if they had never been admitted. Those that are old, those of a
    /// bucket, and those that may have opened a window may be admitted once more at any time.
    fn take_back(&mut self, now: u64, server: u64, spent: &Spent) {
        let (quota, units) = (self.policy.quota(), spent.cost as i64);
        let period = quota.period().as_micros() as u64;
        match self.policy.algorithm() {
            Algorithm::FixedWindow if !spent.is_old && spent.at / period < server / period => {}
            Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. } if !spent.is_old => {
                let mut recent = self.recent.iter_mut();
                if let Some((_, sum)) = recent.find(|(at, _)| *at == spent.time) {
                    *sum -= units;
                }
            }
            _ => {
                self.count(now, server, -units);
            }
        }
    }

    /// Counts admitted units, or refunded ones, which may be admitted once more. Returns `false`
    /// when they exceed the bound.
    fn count(&mut self, now: u64, server: u64, units: i64) -> bool {
        let units = units - mem::take(&mut self.left_out) as i64;
        let quota = self.policy.quota();
        let (n, b) = (quota.amount() as i64, quota.burst() as i64);
        let period = quota.period().as_micros() as u64;
        match self.policy.algorithm() {
            Algorithm::TokenBucket => {
                let drained = i128::from(n) * i128::from(now - self.last);
                self.last = now;
                self.level = (self.level - drained).max(0) + i128::from(units) * i128::from(period);
                self.level <= i128::from(b) * i128::from(period)
            }
            Algorithm::FixedWindow => {
                if self.window.0 != server / period {
                    self.window = (server / period, 0);
                }
                self.window.1 = self.window.1.max(0) + units;
                self.window.1 <= n
            }
            Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. } => {
                self.in_a_period(now, period, units) <= n
            }
            Algorithm::WindowFromFirstHit | Algorithm::SlidingWindow => {
                self.in_a_period(now, period, units) < 2 * n
            }
            Algorithm::IntervalBucket => self.in_a_period(now, period, units) < b + n,
            other => unreachable!("no bound is known for {other:?}"),
        }
    }

    /// Returns the most units of any interval that ends now and is not longer than a period.
    fn in_a_period(&mut self, now: u64, period: u64, units: i64) -> i64 {
        match self.recent.back_mut() {
            Some((at, sum)) if *at == now => *sum += units,
            _ => self.recent.push_back((now, units)),
        }
        self.recent.retain(|(at, _)| at + period > now);
        let sums = self.recent.iter().rev().scan(0, |sum, (_, units)| {
            *sum += units;
            Some(*sum)
        });
        sums.max().unwrap_or(0)
    }
}
