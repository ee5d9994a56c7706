//! A batch decides as the same checks one by one: for every algorithm, for sets, and for equal
//! keys.

use tollgate::{Cost, Costs, Key, testing::ALGORITHMS};
use tollgate_test_support::{
    Dice, InMemory, InRedis, START_US, Subject, calls::Script, policies, state_commands,
    stored_state, stream::figures,
};

#[test]
fn a_batch_decides_as_the_same_checks_one_by_one() {
    agree(false);
}

#[test]
fn a_batch_under_ceilings_decides_as_the_same_checks_one_by_one() {
    agree(true);
}

/// Compares batches with the same checks in process. `is_capped` gives every second batch ceilings.
fn agree(is_capped: bool) {
    let mut redis = InRedis::new();
    for algorithm in ALGORITHMS {
        for seed in 0..40 {
            redis.run(&["FLUSHALL"]);
            let mut dice = Dice::new(seed);
            let mut oracle = InMemory::new();
            let mut set = policies::set(&mut dice, algorithm, 4);
            for round in 0..60 {
                if dice.below(20) == 0 {
                    set = policies::set(&mut dice, algorithm, 4);
                }
                let quota = set.iter().next().expect("a policy").quota();
                let period = quota.period().as_micros() as u64;
                let step = dice.pick(&[
                    0,
                    1,
                    period / quota.amount(),
                    period,
                    dice.clone().below(period),
                ]);
                let back = if dice.below(10) == 0 {
                    2 * step.min(1_000_000_000)
                } else {
                    0
                };
                oracle.set_now((oracle.now() + step - back).min(START_US + 1_000_000_000_000_000));
                let least = set
                    .iter()
                    .map(|policy| policy.quota().burst())
                    .min()
                    .expect("a policy");
                let cost = dice.pick(&[0, 1, 1, 1, least, 1 + dice.clone().below(least)]);
                let costs = Costs::new(Cost::new(cost));
                let ceilings = (is_capped && dice.below(2) == 0)
                    .then(|| policies::ceilings(&mut dice, &set, &costs));
                let script = Script::new(set.clone()).under(ceilings.clone());
                redis.load(script.batch_text());
                let most = dice.pick(&[1, 1, 4, 30]);
                let keys: Vec<(Key, usize)> = (0..10_u64)
                    .filter(|_| dice.below(2) == 0)
                    .map(|key| (Key::from(key), 1))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .map(|(key, _)| (key, 1 + dice.below(most) as usize))
                    .collect();
                if keys.is_empty() {
                    continue;
                }
                if dice.below(8) == 0 {
                    let (key, units) = (&keys[0].0, dice.below(3 * least));
                    redis.set_now(oracle.now());
                    redis.owe(&set, key, units);
                    oracle.owe(&set, key, units);
                }
                let reply = redis.run(&script.batch(&keys, Cost::new(cost), Some(oracle.now())));
                let place =
                    || format!("{algorithm:?} seed {seed} round {round} cost {cost} {set:?}");
                assert!(!reply.is_error(), "{}: {}", place(), reply.text());
                let decisions = script
                    .batch_decisions(&keys, Cost::new(cost), reply.bytes())
                    .expect("decisions");
                for ((key, count), decisions) in keys.iter().zip(decisions) {
                    assert_eq!(decisions.len(), *count);
                    for (at, decision) in decisions.iter().enumerate() {
                        let expected = match &ceilings {
                            Some(ceilings) => oracle.check_under(&set, key, &costs, ceilings),
                            None => oracle.check(&set, key, cost),
                        };
                        assert_eq!(
                            figures(decision),
                            figures(&expected),
                            "{} check {at} of {count}",
                            place()
                        );
                        assert_eq!(decision.delay(), expected.delay(), "{}", place());
                    }
                }
                let states = keys
                    .iter()
                    .flat_map(|(key, _)| set.iter().zip(script.keys(key)));
                let replies =
                    redis.run_all(states.flat_map(|(policy, name)| state_commands(policy, name)));
                let states = keys
                    .iter()
                    .flat_map(|(key, _)| set.iter().map(move |policy| (key, policy)));
                for ((key, policy), [value, expires]) in states.zip(replies.as_chunks().0) {
                    assert_eq!(
                        stored_state(value, expires),
                        oracle.stored(policy, key),
                        "{}",
                        place()
                    );
                }
            }
        }
    }
}
