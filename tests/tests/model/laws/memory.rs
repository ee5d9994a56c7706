//! The in-process store. The answers to two or three threads have to be the answers to one caller
//! who makes the same calls in some order in which time does not go back.

use std::{ops::RangeInclusive, time::Duration};

use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};
use tollgate::{
    Algorithm, Cost, Key, Policy, PolicySet, Quota,
    store::Check,
    testing::{ALGORITHMS, Lockless},
};

use tollgate_test_support::described;

use crate::shards::Shards;

/// All keys are in one shard.
const HASH: u64 = 7;

/// The first time of the clock.
const BEGIN_US: u64 = 1_000_000;

/// A step of a thread.
#[derive(Clone, Copy, Debug)]
enum Step {
    Spend(&'static str),
    /// Refunds a unit.
    Refund(&'static str),
    Reset(&'static str),
    Count,
}

use Step::{Count, Refund, Reset, Spend};

/// A step, the time at which it was made, and its answer. Some steps have no time.
#[derive(Clone, Debug)]
struct Record {
    step: Step,
    at_us: Option<u64>,
    answer: String,
}

/// The state that the threads share: the shards of the store, and a clock that advances with each
/// reading.
struct Shared {
    shards: Shards<Lockless>,
    clock_us: AtomicU64,
    pace_us: u64,
    policies: PolicySet,
}

impl Shared {
    fn make(&self, step: Step) -> Record {
        let (mut timed, at_us) = match step {
            Spend(_) | Refund(_) => {
                let clock = || self.clock_us.fetch_add(self.pace_us, Ordering::SeqCst);
                let (timed, now_us) = self.shards.lock_at(HASH, clock);
                (timed, Some(now_us))
            }
            Reset(_) => (self.shards.lock(HASH), None),
            Count => (self.shards.each().next().expect("a shard"), None),
        };
        let answer = make(&mut timed.shard, &self.policies, step, at_us.unwrap_or(0));
        Record {
            step,
            at_us,
            answer,
        }
    }
}

fn make(shard: &mut Lockless, policies: &PolicySet, step: Step, now_us: u64) -> String {
    match step {
        Spend(key) => {
            return described(
                &shard.check(Check::new(policies, &Key::from(key), Cost::ONE), now_us),
            );
        }
        Refund(key) => shard.refund(Check::new(policies, &Key::from(key), Cost::ONE), now_us),
        Reset(key) => shard.reset(policies, &Key::from(key)),
        Count => return shard.count().to_string(),
    }
    String::new()
}

/// The steps of a test, from the beginning to the end.
struct Scene {
    /// The number of states for which there is room.
    room: usize,
    /// The microseconds by which the clock advances with each reading.
    pace_us: u64,
    first: &'static [Step],
    threads: &'static [&'static [Step]],
    last: &'static [Step],
    /// The number of times that [`KEY`] is admitted, in any order.
    passes: RangeInclusive<usize>,
}

const KEY: &str = "acme";

impl Scene {
    /// Tries all orders with every algorithm.
    fn holds(&'static self) {
        for algorithm in ALGORITHMS {
            let policies = PolicySet::from(two(algorithm));
            loom::model(move || self.play(&policies));
        }
    }

    fn play(&'static self, policies: &PolicySet) {
        let shared = Arc::new(Shared {
            shards: Shards::new(1, || Lockless::new(self.room)),
            clock_us: AtomicU64::new(BEGIN_US),
            pace_us: self.pace_us,
            policies: policies.clone(),
        });
        let make =
            |steps: &[Step], shared: &Shared| steps.iter().map(|&step| shared.make(step)).collect();
        let first: Vec<Record> = make(self.first, &shared);
        let work = |steps: &'static [Step]| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || make(steps, &shared))
        };
        let threads: Vec<_> = self.threads.iter().map(|&steps| work(steps)).collect();
        let lines: Vec<Vec<Record>> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread"))
            .collect();
        let last = make(self.last, &shared);
        let all = first.iter().chain(lines.iter().flatten()).chain(&last);
        let passed = all
            .filter(|it| matches!(it.step, Spend(KEY)) && it.answer.starts_with("1 "))
            .count();
        assert!(
            self.passes.contains(&passed),
            "{passed} admitted: {first:?} {lines:?} {last:?}"
        );
        let mut order = first.clone();
        let is_like_one = self.is_in_some_order(policies, &mut order, &lines, &last);
        assert!(
            is_like_one,
            "no order of the calls gives these answers: {first:?} {lines:?} {last:?}"
        );
    }

    /// Returns whether one caller gets the same answers in some order of the remaining calls, after
    /// those made before.
    fn is_in_some_order(
        &self,
        policies: &PolicySet,
        before: &mut Vec<Record>,
        lines: &[Vec<Record>],
        last: &[Record],
    ) -> bool {
        if lines.iter().all(Vec::is_empty) {
            return self.is_decided_alone(policies, before.iter().chain(last));
        }
        (0..lines.len())
            .filter(|&at| !lines[at].is_empty())
            .any(|at| {
                let mut left = lines.to_vec();
                before.push(left[at].remove(0));
                let is_found = self.is_in_some_order(policies, before, &left, last);
                before.pop();
                is_found
            })
    }

    fn is_decided_alone<'a>(
        &self,
        policies: &PolicySet,
        mut order: impl Iterator<Item = &'a Record>,
    ) -> bool {
        let (mut alone, mut now_us) = (Lockless::new(self.room), 0);
        order.all(
            |Record {
                 step,
                 at_us,
                 answer,
             }| {
                let is_later = at_us.is_none_or(|at_us| at_us >= now_us);
                now_us = at_us.unwrap_or(now_us);
                is_later && make(&mut alone, policies, *step, now_us) == *answer
            },
        )
    }
}

/// Two units in each period.
fn two(algorithm: Algorithm) -> Policy {
    let quota = Quota::try_new(2, Duration::from_micros(PERIOD_US)).expect("a quota");
    Policy::try_new("two", algorithm, quota).expect("a policy")
}

const PERIOD_US: u64 = 1_000;

/// One more check, and the number of states.
const LOOK: &[Step] = &[Spend(KEY), Count];

#[test]
fn a_key_is_not_admitted_more_often_than_its_quota() {
    const SCENE: &Scene = &Scene {
        room: 100,
        pace_us: 1,
        first: &[],
        threads: &[&[Spend(KEY), Spend(KEY)], &[Spend(KEY), Spend(KEY)]],
        last: LOOK,
        passes: 2..=2,
    };
    SCENE.holds();
}

#[test]
fn a_refund_gives_back_one_unit_once() {
    const SCENE: &Scene = &Scene {
        room: 100,
        pace_us: 1,
        first: &[Spend(KEY), Spend(KEY)],
        threads: &[&[Refund(KEY)], &[Spend(KEY), Spend(KEY)]],
        last: LOOK,
        passes: 3..=3,
    };
    SCENE.holds();
}

#[test]
fn a_reset_comes_before_a_charge_or_after_it() {
    const SCENE: &Scene = &Scene {
        room: 100,
        pace_us: 1,
        first: &[Spend(KEY)],
        threads: &[&[Reset(KEY), Count], &[Spend(KEY), Spend(KEY)]],
        last: LOOK,
        passes: 3..=4,
    };
    SCENE.holds();
}

/// The table starts with room for three states.
#[test]
fn an_exhausted_key_survives_the_growth_of_the_table() {
    const SCENE: &Scene = &Scene {
        room: 100,
        pace_us: 1,
        first: &[Spend(KEY), Spend("apex"), Spend("alto")],
        threads: &[&[Spend("aura"), Count], &[Spend(KEY), Spend(KEY)]],
        last: LOOK,
        passes: 2..=2,
    };
    SCENE.holds();
}

/// No other key is exhausted.
#[test]
fn an_exhausted_key_survives_an_eviction() {
    const SCENE: &Scene = &Scene {
        room: 2,
        pace_us: 1,
        first: &[Spend(KEY), Spend(KEY), Spend("idle")],
        threads: &[&[Spend("new"), Count], &[Spend(KEY), Spend("newer")]],
        last: LOOK,
        passes: 2..=2,
    };
    SCENE.holds();
}

/// A check that read the clock before the state was fresh again finds no state.
#[test]
fn a_check_that_the_cleaning_overtook_is_not_admitted_in_the_past() {
    const SCENE: &Scene = &Scene {
        room: 2,
        pace_us: PERIOD_US / 2 + 1,
        first: &[Spend(KEY), Spend("idle")],
        threads: &[&[Spend(KEY)], &[Spend("new"), Spend("newer")]],
        last: LOOK,
        passes: 2..=3,
    };
    SCENE.holds();
}
