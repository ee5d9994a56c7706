//! Tests the algorithms on the in-process store with a manual clock: what the laws of `tests/laws`
//! do not say.

mod bounds;
mod branch;
mod change;
mod debt;
mod each;
mod log;
mod refund;
mod remembered;

use std::{num::NonZeroUsize, time::Duration};

use tollgate_model::{raw::DecisionParts, testing::ALGORITHMS};

use crate::{
    Algorithm, Cost, Decision, Key, MemoryStore, Policy, PolicySet, Quota, Store, clock::Clock,
    store::Check,
};

/// A store, a key, and a policy that a test can replace.
struct Bench {
    store: MemoryStore,
    clock: Clock,
    set: PolicySet,
    key: Key,
}

const ROOM: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// A multiple of all periods that the tests use, far from the epoch.
const EPOCH_US: u64 = 1_700_000_000_000_000 / 138_600 * 138_600;

impl Bench {
    fn new(policy: Policy) -> Self {
        let clock = Clock::manual(EPOCH_US);
        let store = MemoryStore::builder()
            .clock(clock.clone())
            .max_keys(ROOM)
            .build();
        Self {
            store,
            clock,
            set: policy.into(),
            key: Key::new("k"),
        }
    }

    fn policy(&self) -> &Policy {
        self.set.iter().next().unwrap()
    }

    fn change(&mut self, policy: Policy) {
        self.set = policy.into();
    }

    fn now(&self) -> u64 {
        self.clock.now_us() - EPOCH_US
    }

    /// Sets the clock, in microseconds since the epoch of the tests.
    fn at(&self, us: i64) -> &Self {
        self.clock.set(EPOCH_US.saturating_add_signed(us));
        self
    }

    fn pass(&self, us: u64) -> &Self {
        self.clock.advance(Duration::from_micros(us));
        self
    }

    fn check(&self, cost: u64) -> Decision {
        self.store
            .decide(Check::new(&self.set, &self.key, Cost::new(cost)))
    }

    fn admits(&self, cost: u64) -> bool {
        self.check(cost).is_allowed()
    }

    /// Returns the delay of a request that would come now.
    fn delay(&self) -> Duration {
        self.check(0).into_key_state().delay()
    }

    /// Spends single units until one is denied. Returns the number of admitted units.
    fn take_all(&self) -> u64 {
        (0..).find(|_| !self.admits(1)).unwrap()
    }

    fn refund(&self, cost: u64, of: Option<&Decision>) {
        let check = Check::new(&self.set, &self.key, Cost::new(cost));
        self.store.refund(check, of).into_ready().unwrap().unwrap();
    }

    fn remaining(&self) -> u64 {
        one(&self.check(0)).remaining
    }

    /// Returns the numbers of a peek and the stored state.
    fn peek(&self) -> (One, Option<(Vec<u8>, u64)>) {
        (
            one(&self.check(0)),
            self.store.stored(self.policy(), &self.key),
        )
    }
}

/// The numbers of a decision over one policy, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct One {
    allowed: bool,
    remaining: u64,
    retry: Option<u64>,
    reset: u64,
    more: u64,
}

fn one(decision: &Decision) -> One {
    let state = decision.states().next().unwrap();
    let micros = |time: Duration| time.as_micros() as u64;
    One {
        allowed: decision.is_allowed(),
        remaining: state.remaining(),
        retry: decision.retry_after().map(micros),
        reset: micros(state.reset_after()),
        more: micros(state.next_unit_after()),
    }
}

fn quota(amount: u64, period_us: u64) -> Quota {
    Quota::new(amount, Duration::from_micros(period_us))
}

/// Returns a policy of every algorithm for one quota. Bucket algorithms also get each of `bursts`.
fn all(quota: Quota, bursts: &[u64]) -> Vec<Policy> {
    let buckets = quota.period().as_micros().clamp(1, 4) as u16;
    let mut all = vec![Policy::sliding_buckets("p", quota, 1)];
    for algorithm in ALGORITHMS {
        let algorithm = match algorithm {
            Algorithm::SlidingBuckets { .. } => Algorithm::SlidingBuckets { buckets },
            Algorithm::Lockout { .. } => Algorithm::Lockout {
                first: quota.period(),
                longest: quota.period() * 4,
            },
            other => other,
        };
        let bursts = if algorithm.has_burst() { bursts } else { &[] };
        let quotas = bursts
            .iter()
            .map(|&burst| quota.with_burst(burst))
            .chain([quota]);
        all.extend(quotas.map(|quota| Policy::try_new("p", algorithm, quota).unwrap()));
    }
    all
}

/// Returns policies of every algorithm. The time of one unit is a whole number of microseconds, a
/// fraction, or below 1 µs.
fn many() -> Vec<Policy> {
    let mut many = Vec::new();
    for (amount, period_us, bursts) in [
        (1, 1, &[3][..]),
        (3, 7, &[1, 5]),
        (4, 12, &[2, 9]),
        (7, 3, &[4]),
        (10, 7_000_000, &[4, 25]),
        (3, 1_000_000, &[1]),
        (1_000, 86_400_000_000, &[10]),
    ] {
        many.extend(all(quota(amount, period_us), bursts));
    }
    many
}

/// Generates the same numbers in every run (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit
    }

    /// Returns a time step near an edge of the policy, in microseconds.
    fn step(&mut self, policy: &Policy) -> u64 {
        let quota = policy.quota();
        let period = quota.period().as_micros() as u64;
        let unit = period / quota.amount();
        let steps = [
            0,
            0,
            0,
            1,
            unit,
            unit + 1,
            unit.saturating_sub(1),
            period,
            period - 1,
            period + 1,
            period / 3,
        ];
        steps[self.below(steps.len() as u64) as usize]
    }

    fn cost(&mut self, policy: &Policy) -> u64 {
        match self.below(4) {
            0 => 1 + self.below(policy.quota().burst()),
            _ => 1,
        }
    }
}
