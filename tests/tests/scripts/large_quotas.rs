//! The arithmetic of large quotas, beyond the products that a double holds exactly.

use std::time::Duration;

use tollgate::{Algorithm, Cost, Key, Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{
    Dice, InMemory, InRedis, Subject, calls::Script, policies, stream::figures,
};
use tollgate_tests::Reply;

const MULDIV: &str = include_str!("../../../scripts/muldiv.lua");

/// The greatest amount and burst.
const MOST: u64 = 999_999_999_999_999;

/// The longest period in µs.
const TEN_YEARS_US: u64 = 315_360_000_000_000;

#[test]
fn muldiv_is_exact_for_all_factors_that_the_scripts_have() {
    let mut redis = InRedis::new();
    let function = MULDIV
        .split_once("\n--# muldiv")
        .and_then(|(_, section)| section.split_once('\n'))
        .expect("a section")
        .1;
    let text = format!(
        "{function}local words = struct.pack('<dd', muldiv(ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0))\nreturn words"
    );
    let sha = redis.run(&["SCRIPT", "LOAD", &text]).text();
    let mut dice = Dice::new(53);
    let edges = [
        1,
        2,
        3,
        9,
        10,
        (1 << 32) - 1,
        1 << 32,
        1_000_000_000_000,
        (1 << 45) - 55,
        TEN_YEARS_US,
        MOST - 1,
        MOST,
    ];
    let mut cases: Vec<[u64; 3]> = Vec::new();
    for c in edges {
        for a in edges.into_iter().filter(|&a| a <= c) {
            cases.extend(edges.map(|b| [a, b, c]));
            cases.push([a, 0, c]);
            cases.push([a, (1 << 53) - 1, c]);
        }
    }
    for _ in 0..20_000 {
        let bits = 1 + dice.below(49);
        let c = 1 + dice.below(MOST.min(2 << bits));
        cases.push([
            dice.below(c + 1),
            dice.below(1 << (1 + dice.clone().below(53))),
            c,
        ]);
    }
    for cases in cases.chunks(2_000) {
        let call = |case: &[u64; 3]| {
            let words = ["EVALSHA".to_owned(), sha.clone(), "0".to_owned()].into_iter();
            words
                .chain(case.map(|number| number.to_string()))
                .map(String::into_bytes)
                .collect()
        };
        let calls: Vec<Vec<Vec<u8>>> = cases.iter().map(call).collect();
        let replies = redis.client.pipeline(&calls).expect("replies");
        for (reply, &[a, b, c]) in replies.iter().zip(cases) {
            let product = u128::from(a) * u128::from(b);
            let expected =
                [product / u128::from(c), product % u128::from(c)].map(|part| part as f64);
            let bytes: Vec<u8> = expected
                .iter()
                .flat_map(|part| part.to_le_bytes())
                .collect();
            assert!(
                matches!(reply, Reply::Bulk(found) if *found == bytes),
                "{a} * {b} / {c}: {reply:?}"
            );
        }
    }
}

/// Two products that differ by one, and are one number as doubles: a sliding window must tell them
/// apart.
#[test]
fn a_sliding_window_tells_products_apart_that_are_equal_as_doubles() {
    let mut redis = InRedis::new();
    let most = u64::from(u32::MAX);
    let mut tried = 0;
    for previous in (1..4_000).map(|step| most - 999_983 * step) {
        // At this time before the end of the window the share of the previous units is a whole
        // number and a little more.
        let Some(left) = inverse(previous, TEN_YEARS_US) else {
            continue;
        };
        let room = (u128::from(previous) * u128::from(left) / u128::from(TEN_YEARS_US)) as u64;
        let (share, whole) = (
            u128::from(previous) * u128::from(left),
            u128::from(room) * u128::from(TEN_YEARS_US),
        );
        assert_eq!(share - whole, 1);
        if share as f64 != whole as f64 || tried == 20 {
            continue;
        }
        tried += 1;
        let set = PolicySet::from(Policy::sliding_window(
            "p",
            Quota::new(most, Duration::from_micros(TEN_YEARS_US)),
        ));
        let key = Key::from(previous);
        let mut memory = InMemory::new();
        for subject in [&mut memory as &mut dyn Subject, &mut redis] {
            let start = 13 * TEN_YEARS_US;
            subject.set_now(start - 1);
            assert!(subject.check(&set, &key, previous).is_allowed());
            subject.set_now(start + TEN_YEARS_US - left);
            let cost = most - room;
            assert!(
                subject.check(&set, &key, cost).is_denied(),
                "{previous} units, {left} µs left"
            );
            subject.advance(1);
            assert!(
                subject.check(&set, &key, cost).is_allowed(),
                "{previous} units, {left} µs left"
            );
        }
    }
    assert_eq!(tried, 20);
}

/// Returns the number below `modulus` whose product with `number` is one more than a multiple of
/// `modulus`.
fn inverse(number: u64, modulus: u64) -> Option<u64> {
    let (mut old, mut new) = ((i128::from(number), 1_i128), (i128::from(modulus), 0_i128));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient * new.1));
    }
    (old.0 == 1).then(|| old.1.rem_euclid(i128::from(modulus)) as u64)
}

/// A batch derives the numbers of its earlier requests from those of the last.
#[test]
fn a_batch_of_large_costs_decides_as_the_functions_do() {
    let mut redis = InRedis::new();
    let mut dice = Dice::new(45);
    for algorithm in ALGORITHMS
        .into_iter()
        .filter(|&algorithm| algorithm != Algorithm::SlidingLog)
    {
        for round in 0..40_u64 {
            let policy = policies::large_policy(&mut dice, "p", algorithm);
            let (set, key) = (PolicySet::from(policy.clone()), Key::from(round));
            let script = Script::new(set.clone());
            redis.load(script.batch_text());
            redis.reset(&set, &key);
            let mut oracle = InMemory::new();
            let burst = policy.quota().burst();
            for cost in [1, 1 + dice.below(burst), burst / 3 + 1, burst] {
                oracle.advance(dice.below(policy.quota().period().as_micros() as u64));
                let reply = redis.run(&script.batch(
                    &[(key.clone(), 4)],
                    Cost::new(cost),
                    Some(oracle.now()),
                ));
                let decisions =
                    script.batch_decisions(&[(key.clone(), 4)], Cost::new(cost), reply.bytes());
                for decision in &decisions.expect("decisions")[0] {
                    let expected = oracle.check(&set, &key, cost);
                    assert_eq!(
                        figures(decision),
                        figures(&expected),
                        "cost {cost} of {policy:?}"
                    );
                }
                assert_eq!(
                    redis.stored(&policy, &key),
                    oracle.stored(&policy, &key),
                    "cost {cost} of {policy:?}"
                );
            }
        }
    }
}

/// A refund may name more units than any state holds.
#[test]
fn a_refund_of_more_than_all_units_returns_all_of_them() {
    let (mut redis, mut memory) = (InRedis::new(), InMemory::new());
    let mut dice = Dice::new(64);
    for algorithm in ALGORITHMS {
        for round in 0..20_u64 {
            let policy = policies::policy(&mut dice, "p", algorithm);
            let (set, key) = (PolicySet::from(policy.clone()), Key::from(round));
            for subject in [&mut redis as &mut dyn Subject, &mut memory] {
                subject.reset(&set, &key);
                let _ = subject.check(
                    &set,
                    &key,
                    1 + dice.below(policy.quota().burst().min(1_000)),
                );
                let now = subject.now();
                subject.refund(&set, &key, dice.pick(&[MOST + 1, 1 << 53, u64::MAX]), now);
                let left = subject
                    .check(&set, &key, 0)
                    .states()
                    .next()
                    .map(|state| state.remaining());
                assert_eq!(left, Some(policy.quota().burst()), "{policy:?}");
                // A full token bucket remembers what came back.
                if algorithm != Algorithm::TokenBucket {
                    assert_eq!(subject.stored(&policy, &key), None, "{policy:?}");
                }
            }
        }
    }
}
