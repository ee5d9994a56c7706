//! The laws that every algorithm keeps, each on every store: in process, over a map and in PostgreSQL
//! by the adapter, and in Redis.
//!
//! The number of a law stands in the name of its tests. The in-process store is tried with many
//! random policies. The adapter and the scripts, which agree with it bit for bit (see
//! `scripts/agreement.rs`), are tried with some of the same.

mod accounts;
mod answers;
mod bound;
mod branches;
mod calendar;
mod cascades;
mod ceilings;
mod changes;
mod clock;
mod cost;
mod damage;
mod expiry;
mod fair_and_plain;
mod fair_shares;
mod leases;
mod looks;
mod priorities;
mod refunds;
mod reservations;
mod sets;
mod waiting;

use std::{thread, time::Duration};

use tollgate::{Algorithm, Decision, Key, PolicySet, store::Clock, testing::ALGORITHMS};
use tollgate_test_support::{
    Dice, InMap, InMemory, InRedis, POSTGRES, Rows, START_US, Subject, in_postgres, stream,
};

/// Tries a law with every algorithm on every store; more often in process, where a try is cheap.
fn on_every_store(law: impl Fn(&mut dyn Subject, &mut Dice, Algorithm)) {
    let mut redis = InRedis::new();
    let mut postgres = in_postgres(&POSTGRES, Clock::manual(START_US));
    // A call of PostgreSQL takes two trips: each law is tried there with every fourth algorithm, or
    // with all of them in a full run. The length of its name says where a law begins, so that each
    // algorithm has its turn.
    let turn = thread::current().name().map_or(0, str::len);
    for (at, algorithm) in ALGORITHMS.into_iter().enumerate() {
        for seed in 0..stream::part_of(200) {
            law(&mut InMemory::new(), &mut Dice::new(seed), algorithm);
        }
        for seed in 0..6 {
            law(&mut InMap::new(), &mut Dice::new(seed), algorithm);
        }
        if stream::is_full() || (at + turn).is_multiple_of(4) {
            postgres.with_bytes(Rows::clear);
            postgres.set_now(START_US);
            law(&mut postgres, &mut Dice::new(0), algorithm);
        }
        for seed in 0..stream::part_of(12) {
            redis.run(&["FLUSHALL"]);
            redis.set_now(START_US);
            law(&mut redis, &mut Dice::new(seed), algorithm);
        }
    }
}

fn key() -> Key {
    Key::from("subject")
}

/// Returns the wait of a denial in microseconds.
fn micros(wait: Option<Duration>) -> u64 {
    wait.expect("a denial has a time to retry").as_micros() as u64
}

/// Returns the smallest burst of the set.
fn least_burst(policies: &PolicySet) -> u64 {
    policies
        .iter()
        .map(|policy| policy.quota().burst())
        .min()
        .expect("a set has a policy")
}

/// Returns the units left, under the policy that has the fewest.
fn remaining(decision: &Decision) -> u64 {
    decision
        .states()
        .map(|state| state.remaining())
        .min()
        .expect("a decision has a state")
}

/// Spends until the next unit is denied, and returns how many units passed.
fn drain(subject: &mut dyn Subject, policies: &PolicySet) -> u64 {
    let mut passed = 0;
    // Large steps first, so that a burst of a million is spent in a few calls.
    let mut step = least_burst(policies);
    while step > 0 {
        if subject.check(policies, &key(), step).is_allowed() {
            passed += step;
        } else {
            step /= 2;
        }
    }
    passed
}

/// Moves to a random place in the life of a state: spends some units and waits, several times.
fn wander(subject: &mut dyn Subject, dice: &mut Dice, policies: &PolicySet) {
    let period = policies
        .iter()
        .next()
        .expect("a set has a policy")
        .quota()
        .period()
        .as_micros() as u64;
    for _ in 0..dice.below(12) {
        let cost = 1 + dice.below(least_burst(policies));
        let _ = subject.check(policies, &key(), cost);
        subject.advance(dice.below(period / 2 + 2));
    }
}
