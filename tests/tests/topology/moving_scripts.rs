//! The scripts at the source of a slot that is being moved. A call inside a script is refused there
//! when its key does not exist: no script may delete a key and use it again, and one that is
//! refused may not have written anything.

use tollgate::{
    Algorithm, CalendarUnit, Cost, Key, Policy, PolicySet, Quota, RedisStore, TimeZone,
    redis::RedisSource, reservation::ReservationId, store::Clock, testing::ALGORITHMS,
};
use tollgate_test_support::{
    Dice, PATIENCE, START_US,
    calls::{MixedBatch, MixedSubject, Script},
    decided, patient_limiter, stream,
};
use tollgate_tests::{RedisServer, Reply, expiry_command};

use super::cluster_moves::{CLUSTER, a_key, moves};

const PERIOD_US: u64 = 10_000_000;

const QUOTA: Quota = Quota::new(5, std::time::Duration::from_micros(PERIOD_US));

/// Names the value that is stored before a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Planted {
    State,
    Damaged,
    OtherType,
}

const PLANTED: [Planted; 3] = [Planted::State, Planted::Damaged, Planted::OtherType];

/// The times of a call: soon after the state was written, when it has just lapsed, long after, and
/// on a clock that was set back.
const TIMES: [u64; 4] = [
    START_US + 1,
    START_US + PERIOD_US,
    START_US + 9 * PERIOD_US,
    START_US - 9 * PERIOD_US,
];

/// A call: its name, its text, and the words of `EVALSHA`.
struct Call {
    name: &'static str,
    text: String,
    words: Vec<Vec<u8>>,
}

impl Call {
    fn new(name: &'static str, text: &str, words: Vec<Vec<u8>>) -> Self {
        Self {
            name,
            text: text.to_owned(),
            words,
        }
    }

    /// Returns the keys of the call.
    fn keys(&self) -> &[Vec<u8>] {
        let count: usize = String::from_utf8_lossy(&self.words[2])
            .parse()
            .expect("a number");
        &self.words[3..3 + count]
    }

    /// Runs the script by its text, after the lines in `before`.
    fn run(&self, server: &RedisServer, before: &str) -> Reply {
        let mut words = vec![
            b"EVAL".to_vec(),
            format!("{before}{}", self.text).into_bytes(),
        ];
        words.extend_from_slice(&self.words[2..]);
        server.command(&words)
    }
}

fn id(text: &str) -> ReservationId {
    ReservationId::try_new(text).expect("an id")
}

/// Returns every call over these policies, for two keys of one slot.
fn calls(set: &PolicySet, keys: &[Key; 2], now_us: u64) -> Vec<Call> {
    let script = Script::new(set.clone());
    let now = Some(now_us);
    let [one, _] = keys;
    let batch = |counts: [usize; 2]| {
        let keys: Vec<_> = keys.iter().cloned().zip(counts).collect();
        Call::new(
            "batch",
            script.batch_text(),
            script.batch(&keys, Cost::ONE, now),
        )
    };
    let subject = |(key, cost): (&Key, u64)| MixedSubject {
        policies: set.clone(),
        key: key.clone(),
        tag: String::new(),
        runs: vec![(Cost::new(cost).into(), 2)],
    };
    let mixed = MixedBatch::new(keys.iter().zip([1, 2]).map(subject).collect());
    let mut calls: Vec<_> = [0, 1, 5]
        .map(|cost| {
            Call::new(
                "check",
                script.text(),
                script.check(one, Cost::new(cost), now),
            )
        })
        .into();
    calls.extend([
        batch([1, 1]),
        batch([2, 6]),
        Call::new("mixed", mixed.text(), mixed.call(now)),
    ]);
    for (units, spent) in [(1, START_US), (3, START_US), (9, now_us)] {
        calls.push(Call::new(
            "refund",
            script.refund_text(),
            script.refund(one, Cost::new(units), now, spent),
        ));
    }
    for units in [1, 5] {
        let words = script.reserve(one, &id("lapsed"), Cost::new(units), PERIOD_US, now);
        calls.push(Call::new("reserve", script.reserve_text(), words));
    }
    for units in [0, 1, 30] {
        let words = script.commit(one, &id("held"), Cost::new(units), 1, now);
        calls.push(Call::new("commit", script.commit_text(), words));
    }
    calls
}

/// Returns the sets: each algorithm alone, and before and behind a log.
fn sets() -> Vec<PolicySet> {
    let calendar = Algorithm::CalendarWindow {
        unit: CalendarUnit::Month,
        zone: TimeZone::UTC,
        anchor: None,
    };
    let policy = |name: &str, algorithm| Policy::try_new(name, algorithm, QUOTA).expect("a policy");
    let log = || policy("log", Algorithm::SlidingLog);
    let calendar_policy =
        || Policy::calendar_window("month", 5, CalendarUnit::Month, TimeZone::UTC);
    let mut sets = Vec::new();
    for algorithm in ALGORITHMS.into_iter().chain([calendar]) {
        let of_it = || {
            if algorithm == calendar {
                calendar_policy()
            } else {
                policy("p", algorithm)
            }
        };
        for policies in [vec![of_it()], vec![log(), of_it()], vec![of_it(), log()]] {
            sets.push(PolicySet::try_new(policies).expect("a set"));
        }
    }
    sets
}

fn ok(reply: &Reply) {
    assert!(!reply.is_error(), "{}", reply.text());
}

/// Stores a state of three units under both keys, a record that has lapsed, and one that has not.
fn plant(server: &RedisServer, set: &PolicySet, keys: &[Key; 2], planted: Planted) {
    ok(&server.command(&["FLUSHALL"]));
    let script = Script::new(set.clone());
    for key in keys {
        let words = script.reserve(
            key,
            &id("held"),
            Cost::new(3),
            99 * PERIOD_US,
            Some(START_US),
        );
        ok(&Call::new("reserve", script.reserve_text(), words).run(server, ""));
    }
    ok(&server.command(&[
        "SET",
        &script.record_key(&keys[0], &id("lapsed")),
        "no record",
    ]));
    if planted == Planted::State {
        return;
    }
    for (policy, at) in keys.iter().flat_map(|key| set.iter().zip(script.keys(key))) {
        let is_list =
            (policy.algorithm() == Algorithm::SlidingLog) != (planted == Planted::OtherType);
        ok(&server.command(&["DEL", &at]));
        ok(&server.command(&[if is_list { "RPUSH" } else { "SET" }, &at, "damaged"]));
    }
}

/// Returns the values and the expiries of the keys of a call.
fn dump(server: &RedisServer, call: &Call) -> Vec<[Reply; 2]> {
    let dump = |key: &Vec<u8>| {
        [
            server.command(&[b"DUMP", &key[..]]),
            server.command(&expiry_command(key.clone())),
        ]
    };
    call.keys().iter().map(dump).collect()
}

fn is_refusal(reply: &Reply) -> bool {
    let is_one_of = |text: &str| {
        text.contains("non local key") || text.contains("during rehashing of the slot")
    };
    reply.is_error() && is_one_of(&reply.text())
}

/// Returns whether a run that is not full leaves this call out.
fn is_left_out(dice: &mut Dice) -> bool {
    !stream::is_full() && dice.below(25) > 0
}

/// Returns two keys of one slot of the first server.
fn two_keys(text: &str) -> ([Key; 2], u16, &'static RedisServer, &'static RedisServer) {
    let (key, slot, from, to) = a_key(text);
    ([key.clone().child("one"), key.child("two")], slot, from, to)
}

#[tokio::test]
async fn every_script_decides_at_the_source_of_a_moving_slot_as_elsewhere() {
    let _held = moves().await;
    let (keys, slot, from, to) = two_keys("as elsewhere");
    let (mut wrong, mut dice) = (Vec::new(), Dice::new(1));
    for set in sets() {
        for planted in PLANTED {
            for (now_us, at) in TIMES.into_iter().flat_map(|now_us| {
                (0..calls(&set, &keys, now_us).len()).map(move |at| (now_us, at))
            }) {
                if is_left_out(&mut dice) {
                    continue;
                }
                let call = &calls(&set, &keys, now_us)[at];
                plant(from, &set, &keys, planted);
                let before = dump(from, call);
                let expected = (call.run(from, ""), dump(from, call));
                plant(from, &set, &keys, planted);
                CLUSTER.begin_move(slot, from, to);
                let reply = call.run(from, "");
                CLUSTER.cancel_move(slot, from, to);
                let outcome = (reply, dump(from, call));
                // What is no list in the place of a log is deleted, and the new server decides.
                // Nothing else was written.
                let is_untouched = |(after, before): (&[Reply; 2], &[Reply; 2])| {
                    after == before || after[0].is_nil()
                };
                let is_left = is_refusal(&outcome.0)
                    && planted == Planted::OtherType
                    && outcome.1.iter().any(|[value, _]| value.is_nil())
                    && outcome.1.iter().zip(&before).all(is_untouched);
                assert!(
                    !expected.0.is_error(),
                    "{} {set:?}: {}",
                    call.name,
                    expected.0.text()
                );
                if outcome != expected && !is_left {
                    let names: Vec<_> = set.iter().map(Policy::algorithm).collect();
                    wrong.push(format!(
                        "{} {names:?} {planted:?} {now_us}: {:?}",
                        call.name, outcome.0
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} calls differ: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
}

/// A key may expire after the server has looked whether it exists, and before the script reads it.
#[tokio::test]
async fn a_script_that_is_refused_in_a_moving_slot_has_written_nothing() {
    let _held = moves().await;
    let (keys, slot, from, to) = two_keys("refused");
    let (mut wrong, mut dice) = (Vec::new(), Dice::new(2));
    for set in sets() {
        let calls = calls(&set, &keys, START_US + 1);
        for call in &calls {
            for gone in 1..=call.keys().len() {
                if is_left_out(&mut dice) {
                    continue;
                }
                plant(from, &set, &keys, Planted::State);
                let before = dump(from, call);
                CLUSTER.begin_move(slot, from, to);
                let reply = call.run(from, &format!("redis.call('DEL', KEYS[{gone}])\n"));
                CLUSTER.cancel_move(slot, from, to);
                let after = dump(from, call);
                let is_kept = (1..)
                    .zip(after.iter().zip(&before))
                    .all(|(at, (after, before))| at == gone || after == before);
                // A script that had no reason to write may also have answered.
                if !is_kept || (reply.is_error() && !is_refusal(&reply)) {
                    let names: Vec<_> = set.iter().map(Policy::algorithm).collect();
                    wrong.push(format!(
                        "{} {names:?} without key {gone}: {reply:?}",
                        call.name
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} calls have written: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
}

#[tokio::test]
async fn a_sliding_log_of_a_moving_slot_admits_no_more_than_elsewhere() {
    let _held = moves().await;
    let clock = Clock::manual(START_US);
    let store = RedisStore::builder(RedisSource::cluster(CLUSTER.urls()))
        .prefix("log")
        .connect_timeout(PATIENCE)
        .clock(clock.clone());
    let limiter = patient_limiter(
        store.connect().await.expect("a store"),
        Policy::sliding_log("log", QUOTA),
    );
    let (key, slot, from, to) = a_key("log");
    let admitted = async || {
        let mut admitted = 0;
        for _ in 0..10 {
            admitted += u64::from(decided(&limiter, key.clone()).await.is_allowed());
        }
        admitted
    };
    assert_eq!(admitted().await, 5);
    CLUSTER.begin_move(slot, from, to);
    // The clock goes back by more than a period: what was admitted counts for now.
    clock.set(START_US - 3 * PERIOD_US);
    assert_eq!(admitted().await, 0);
    // At the time that a denial names, all have left.
    let denial = limiter.check(key.clone()).await.expect("a decision");
    clock.advance(denial.retry_after().expect("a time"));
    assert_eq!(admitted().await, 5);
    CLUSTER.move_keys(slot, from, to);
    assert_eq!(admitted().await, 0);
    CLUSTER.end_move(slot, from, to);
    assert_eq!(admitted().await, 0);
    CLUSTER.move_slots([slot], to, from);
}
