//! Arguments typed in decimal, as a person does with `redis-cli`, decide as the packed arguments of
//! the store.

use tollgate::{Cost, Key, Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{Dice, InRedis, Subject, calls::Script, integers, policies, stream};

#[test]
fn decimal_numbers_decide_as_packed_ones() {
    let mut redis = InRedis::new();
    let mut dice = Dice::new(11);
    let (typed, packed) = (Key::from("typed"), Key::from("packed"));
    let mut denied = 0;
    for algorithm in ALGORITHMS {
        for _ in 0..stream::part_of(40).max(10) {
            let set = policies::set(&mut dice, algorithm, 3);
            let script = Script::new(set.clone());
            redis.load(script.text());
            redis.load(script.refund_text());
            for key in [&typed, &packed] {
                redis.reset(&set, key);
            }
            for round in 0..12 {
                let now = redis.now() + dice.below(400_000);
                redis.set_now(now);
                let most = set
                    .iter()
                    .map(|policy| policy.quota().burst())
                    .min()
                    .unwrap_or(1);
                let cost = Cost::new(round % 4).min(Cost::new(most));
                let by_hand = integers(&redis.run(&script.check_by_hand(&typed, cost, Some(now))));
                let as_sent = integers(&redis.run(&script.check(&packed, cost, Some(now))));
                assert_eq!(by_hand, as_sent, "round {round} of {set:?}");
                denied += u32::from(
                    script
                        .decision(cost, &by_hand)
                        .expect("a decision")
                        .is_denied(),
                );
                if round % 3 == 2 {
                    let one = Cost::ONE;
                    redis.run(&script.refund_by_hand(&typed, one, Some(now), now));
                    redis.run(&script.refund(&packed, one, Some(now), now));
                }
                for policy in set.iter() {
                    assert_eq!(
                        redis.stored(policy, &typed),
                        redis.stored(policy, &packed),
                        "round {round} of {set:?}"
                    );
                }
            }
        }
    }
    assert!(denied > 50, "{denied} denials");
}

/// An empty argument in the place of the time stands for the server's clock.
#[test]
fn an_empty_time_is_that_of_the_server() {
    let mut redis = InRedis::new();
    let set = PolicySet::from(Policy::fixed_window("p", Quota::per_day(9)));
    let script = Script::new(set.clone());
    redis.load(script.text());
    let key = Key::from("acme");
    let by_hand = redis.run(&script.check_by_hand(&key, Cost::ONE, None));
    let as_sent = redis.run(&script.check(&key, Cost::ONE, None));
    let [one, two] = [by_hand, as_sent].map(|reply| integers(&reply));
    assert_eq!((one[0], two[0]), (1, 2), "one counter");
    assert!(
        (two[2] - one[2]).abs() < 60_000_000,
        "one clock: {one:?}, {two:?}"
    );
}
