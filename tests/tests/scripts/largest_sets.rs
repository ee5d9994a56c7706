//! Sets of eight policies, the most there may be: their scripts compile and decide as the Rust
//! functions do.

use tollgate::{Algorithm, Cost, Costs, Key, Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{
    InMemory, InRedis, Subject,
    calls::{MixedBatch, MixedSubject, Script},
    stream::{self, figures},
};

fn policies(algorithms: impl IntoIterator<Item = Algorithm>) -> Vec<Policy> {
    // Amounts that divide their period, and that do not.
    let quota = |at: u64| Quota::per_minute(5 + at);
    let named = |(at, algorithm)| {
        Policy::try_new(format!("p{at}"), algorithm, quota(at)).expect("a policy")
    };
    (0..).zip(algorithms).map(named).collect()
}

/// Every algorithm in two sets, then eight times each.
fn largest() -> impl Iterator<Item = PolicySet> {
    let alike = ALGORITHMS
        .into_iter()
        .map(|algorithm| policies([algorithm; 8]));
    let (first, last) = (
        ALGORITHMS.into_iter().take(8),
        ALGORITHMS.into_iter().rev().take(8),
    );
    [policies(first), policies(last)]
        .into_iter()
        .chain(alike)
        .map(PolicySet::from)
}

#[test]
fn eight_policies_decide_refund_and_batch_as_the_functions_do() {
    let mut redis = InRedis::new();
    for set in largest() {
        assert_eq!(set.len(), 8);
        redis.run(&["FLUSHALL"]);
        let mut oracle = InMemory::new();
        let key = Key::from("acme");
        let script = Script::new(set.clone());
        redis.load(script.batch_text());
        let (mut allowed, mut denied) = (0, 0);
        for round in 0..40_u64 {
            let now = oracle.now() + 1_700_000;
            oracle.set_now(now);
            redis.set_now(now);
            let cost = round % 4;
            let (ours, theirs) = (
                oracle.check(&set, &key, cost),
                redis.check(&set, &key, cost),
            );
            assert_eq!(figures(&theirs), figures(&ours), "round {round} of {set:?}");
            *if ours.is_allowed() {
                &mut allowed
            } else {
                &mut denied
            } += 1;
            if round % 5 == 0 {
                oracle.refund(&set, &key, 1, now);
                redis.refund(&set, &key, 1, now);
            }
            let keys = [(key.clone(), 1), (Key::from(round), 3)];
            let reply = redis.run(&script.batch(&keys, Cost::ONE, Some(now)));
            assert!(!reply.is_error(), "{}", reply.text());
            let decisions = script
                .batch_decisions(&keys, Cost::ONE, reply.bytes())
                .expect("decisions");
            for ((key, _), decisions) in keys.iter().zip(decisions) {
                for decision in decisions {
                    assert_eq!(
                        figures(&decision),
                        figures(&oracle.check(&set, key, 1)),
                        "round {round} of {set:?}"
                    );
                }
            }
            for policy in set.iter() {
                assert_eq!(
                    redis.stored(policy, &key),
                    oracle.stored(policy, &key),
                    "round {round} of {policy:?}"
                );
            }
        }
        assert!(
            allowed > 4 && denied > 4,
            "{allowed} and {denied} of {set:?}"
        );
    }
}

/// Returns one cost for all policies, or a cost for each.
fn costs(set: &PolicySet, draw: u64) -> Costs {
    let costs = Costs::new(Cost::new(draw % 4));
    match draw % 3 {
        0 => costs,
        _ => (draw..)
            .zip(set.iter())
            .fold(costs, |costs, (draw, policy)| {
                costs.with(policy.name().to_owned(), draw % 3)
            }),
    }
}

/// A reply has more numbers than one call of a Lua function may take.
#[test]
fn eight_policies_decide_in_a_mixed_batch_of_many_keys_and_runs() {
    const WORDS: usize = 8_000;
    let mut redis = InRedis::new();
    for set in largest() {
        redis.run(&["FLUSHALL"]);
        let mut oracle = InMemory::new();
        let is_tagged = set
            .iter()
            .any(|policy| policy.algorithm() == Algorithm::SlidingLog);
        let runs = if is_tagged { 1 } else { 10 };
        let subject = |key: u64| MixedSubject {
            policies: set.clone(),
            key: Key::from(key),
            tag: format!("caller {key}"),
            runs: (0..runs)
                .map(|run| (costs(&set, key + run), 1 + (key % 3) as usize))
                .collect(),
        };
        let batch = MixedBatch::new((0..480).map(subject).collect());
        redis.load(batch.text());
        let reply = redis.run(&batch.call(Some(oracle.now())));
        assert!(!reply.is_error(), "{}", reply.text());
        assert!(reply.bytes().len() > WORDS * 8, "{}", reply.bytes().len());
        for (at, decided) in (0..).zip(batch.decisions(reply.bytes()).expect("decisions")) {
            let MixedSubject { key, tag, runs, .. } = subject(at);
            for (decided, (costs, _)) in decided.iter().zip(runs) {
                for decision in decided {
                    let expected = oracle.check_costs(&set, &key, &costs, &tag);
                    assert_eq!(figures(decision), figures(&expected), "{key:?} of {set:?}");
                }
            }
            if !stream::is_full() && at % 25 > 0 {
                continue;
            }
            for policy in set.iter() {
                assert_eq!(
                    redis.stored(policy, &key),
                    oracle.stored(policy, &key),
                    "{policy:?}"
                );
            }
        }
    }
}
