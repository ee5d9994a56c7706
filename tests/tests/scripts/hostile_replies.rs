//! Replies that no script makes are refused as such, and none makes its reader panic.

use redis::Value;
use tollgate::{Cost, Error, ErrorKind, Key, testing::ALGORITHMS};
use tollgate_test_support::{
    Dice,
    calls::{self, MixedBatch, MixedSubject, Script},
    policies,
    stream::{self, figures},
};

/// The first integer that a double cannot tell from the next one.
const EXACT: i64 = 1 << 53;

#[test]
fn a_reply_is_read_at_one_length_and_with_exact_numbers_alone() {
    for (algorithm, seed) in ALGORITHMS.into_iter().zip(0..) {
        let set = policies::set(&mut Dice::new(seed), algorithm, 4);
        let script = Script::new(set.clone());
        let read = |words: &[i64]| {
            let list = Value::Array(words.iter().copied().map(Value::Int).collect());
            script.read(Cost::ONE, &list)
        };
        let is_read = |length: &usize| read(&vec![0; *length]).is_ok();
        let lengths: Vec<_> = (0..=4 * set.len() + 2).filter(is_read).collect();
        let [length] = lengths[..] else {
            panic!("{set:?} is read at the lengths {lengths:?}")
        };
        for (at, wrong) in (0..length).flat_map(|at| [(at, EXACT), (at, i64::MAX), (at, i64::MIN)])
        {
            let mut words = vec![0; length];
            words[at] = wrong;
            let error = read(&words).expect_err("an inexact number");
            assert_eq!(error.kind(), ErrorKind::Protocol, "{set:?}: {words:?}");
        }
    }
}

#[test]
fn no_reply_makes_its_reader_panic_or_fail_otherwise() {
    for seed in 0..stream::part_of(200_000) {
        let mut dice = Dice::new(seed);
        let algorithm = dice.pick(&ALGORITHMS);
        let set = policies::set(&mut dice, algorithm, 3);
        let (script, key, count) = (
            Script::new(set.clone()),
            Key::from(seed),
            dice.below(4) as usize,
        );
        let mixed = MixedBatch::new(vec![MixedSubject {
            policies: set.clone(),
            key: key.clone(),
            tag: String::new(),
            runs: vec![(Cost::ONE.into(), count)],
        }]);
        let reply = value(&mut dice, 3);
        let read = [
            script
                .read(Cost::ONE, &reply)
                .map(|decision| vec![decision]),
            script
                .read_batch(&[(key, count)], Cost::ONE, &reply)
                .map(|all| all.concat()),
            mixed.read(&reply).map(|all| all.concat().concat()),
        ];
        for decisions in read {
            match decisions {
                // None of the figures panics.
                Ok(decisions) => decisions
                    .iter()
                    .for_each(|decision| drop(figures(decision))),
                Err(error) => is_protocol(&error, &reply),
            }
        }
        if let Err(error) = calls::entries(3_600_000_000, reply.clone()) {
            is_protocol(&error, &reply);
        }
    }
}

fn is_protocol(error: &Error, reply: &Value) {
    assert_eq!(error.kind(), ErrorKind::Protocol, "{reply:?}: {error}");
}

/// Draws a reply: lists of integers and packed doubles most often.
fn value(dice: &mut Dice, depth: u64) -> Value {
    match dice.below(10) {
        0 => Value::Nil,
        1 => Value::Int(integer(dice)),
        2 => Value::SimpleString("OK".to_owned()),
        3 | 4 if depth > 0 => {
            let items = (0..dice.below(5)).map(|_| value(dice, depth - 1));
            Value::Array(items.collect())
        }
        5..8 => {
            let length = dice.below(14);
            let numbers = (0..length).flat_map(|_| number(dice).to_le_bytes());
            let mut bytes: Vec<u8> = numbers.collect();
            bytes.truncate(bytes.len() - dice.pick(&[0, 0, 0, 1]).min(bytes.len()));
            Value::BulkString(bytes)
        }
        _ => Value::Array(
            (0..dice.below(14))
                .map(|_| Value::Int(integer(dice)))
                .collect(),
        ),
    }
}

fn integer(dice: &mut Dice) -> i64 {
    let (small, any) = (dice.below(120) as i64, dice.roll() as i64);
    dice.pick(&[
        0,
        1,
        small,
        small,
        small,
        small * 60_000_000,
        -1 - small,
        EXACT - 1,
        EXACT,
        any,
    ])
}

fn number(dice: &mut Dice) -> f64 {
    let exact = integer(dice) as f64;
    dice.pick(&[
        exact,
        exact,
        exact,
        exact,
        exact + 0.5,
        f64::NAN,
        f64::INFINITY,
        f64::MIN_POSITIVE,
    ])
}
