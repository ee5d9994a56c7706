//! Law 5: a denial leaves no trace. Law 6: a cost equals as many units, all or nothing.

use tollgate::{Cost, ErrorKind, Key, MemoryStore, Policy, PolicySet, Quota, testing::ALGORITHMS};
use tollgate_test_support::{
    self as support, InRedis, Subject, connected_store, patient_limiter, policies, stream::figures,
};
use tollgate_tests::RedisServer;

use crate::{drain, key, on_every_store, remaining, wander};

#[test]
fn law_05_a_denial_leaves_no_trace() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        drain(subject, &set);
        let look = |subject: &mut dyn Subject| -> Vec<_> {
            set.iter()
                .map(|policy| subject.stored(policy, &key()))
                .collect()
        };
        let before = look(subject);
        assert!(subject.check(&set, &key(), 1).is_denied());
        assert_eq!(look(subject), before, "{set:?}");
    });
}

/// The commands by which scripts write.
const WRITES: [&str; 9] = [
    "set",
    "setrange",
    "del",
    "lpush",
    "rpush",
    "ltrim",
    "lset",
    "lrem",
    "pexpireat",
];

#[test]
fn law_05_a_denial_sends_no_write_command() {
    let mut redis = InRedis::new();
    for algorithm in ALGORITHMS {
        let set =
            PolicySet::from(Policy::try_new("p", algorithm, Quota::per_hour(5)).expect("a policy"));
        redis.run(&["FLUSHALL"]);
        drain(&mut redis, &set);
        let written = |redis: &InRedis| {
            WRITES
                .iter()
                .map(|command| redis.server.calls(command))
                .sum::<u64>()
        };
        let before = written(&redis);
        for _ in 0..20 {
            assert!(redis.check(&set, &key(), 1).is_denied());
        }
        assert_eq!(written(&redis), before, "{algorithm:?}");
    }
}

#[tokio::test]
async fn law_06_a_cost_that_never_fits_is_an_outcome_of_its_own_and_changes_nothing() {
    let server = RedisServer::start();
    let redis = connected_store(server.url()).await;
    for (at, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let name = format!("p{at}");
        let policy = Policy::try_new(name, algorithm, Quota::per_hour(5)).expect("a policy");
        let limiters = [
            patient_limiter(redis.clone(), policy.clone()),
            patient_limiter(MemoryStore::new(), policy),
        ];
        for limiter in limiters {
            let error = limiter
                .check("acme")
                .cost(Cost::new(6))
                .await
                .expect_err("the burst is 5");
            assert_eq!(error.kind(), ErrorKind::CostExceedsBurst);
            assert_eq!(support::remaining(&limiter, "acme").await, 5);
        }
    }
    assert_eq!(server.keys_and_expires(), (0, 0));
}

#[test]
fn law_06_cost_zero_is_a_peek() {
    on_every_store(|subject, dice, algorithm| {
        let set = policies::set(dice, algorithm, 5);
        wander(subject, dice, &set);
        let (peek, zero) = (subject.peek(&set, &key()), subject.check(&set, &key(), 0));
        assert!(zero.is_allowed());
        assert_eq!(figures(&zero), figures(&peek));
    });
}

#[test]
fn law_06_a_cost_equals_as_many_units_all_or_nothing() {
    on_every_store(|subject, dice, algorithm| {
        let set = PolicySet::from(policies::small_policy(dice, "p", algorithm));
        let (whole, units) = (Key::from("whole"), Key::from("units"));
        for _ in 0..6 {
            let policy = set.iter().next().expect("a policy");
            let left = remaining(&subject.peek(&set, &whole));
            assert_eq!(left, remaining(&subject.peek(&set, &units)), "{set:?}");
            let cost = 1 + dice.below(policy.quota().burst());
            let allowed = subject.check(&set, &whole, cost).is_allowed();
            assert_eq!(allowed, cost <= left, "{set:?}");
            for _ in 0..if allowed { cost } else { 0 } {
                assert!(subject.check(&set, &units, 1).is_allowed(), "{set:?}");
            }
            let policy = set.iter().next().expect("a policy");
            assert_eq!(
                subject.stored(policy, &whole),
                subject.stored(policy, &units),
                "{set:?}"
            );
            subject.advance(dice.below(policy.quota().period().as_micros() as u64));
        }
    });
}

/// A large cost has the same effect in one step and in two steps at the same instant.
#[test]
fn law_06_a_large_cost_equals_its_parts() {
    on_every_store(|subject, dice, algorithm| {
        let policy = policies::large_policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        let (whole, parts) = (Key::from("whole"), Key::from("parts"));
        for _ in 0..8 {
            let burst = policy.quota().burst();
            let left = remaining(&subject.peek(&set, &whole));
            let cost = dice.pick(&[
                1,
                1 << 31,
                1 << 32,
                burst - 1,
                burst,
                1 + dice.clone().below(burst),
                left,
            ]);
            let cost = cost.clamp(1, burst);
            let allowed = subject.check(&set, &whole, cost).is_allowed();
            assert_eq!(allowed, cost <= left, "{set:?}: cost {cost} of {left}");
            if allowed {
                let first = dice.below(cost + 1);
                assert!(subject.check(&set, &parts, first).is_allowed(), "{set:?}");
                assert!(
                    subject.check(&set, &parts, cost - first).is_allowed(),
                    "{set:?}"
                );
            }
            assert_eq!(
                subject.stored(&policy, &whole),
                subject.stored(&policy, &parts),
                "{set:?}"
            );
            subject.advance(dice.below(policy.quota().period().as_micros() as u64));
        }
    });
}

/// A cost above the smallest burst of a set never fits, wherever in the set that burst stands.
#[tokio::test]
async fn law_06_a_cost_above_the_smallest_burst_of_a_set_never_fits() {
    let server = RedisServer::start();
    let redis = connected_store(server.url()).await;
    for algorithm in ALGORITHMS {
        for amounts in [[5, 9], [9, 5]] {
            let named = |at: usize| {
                let quota = Quota::per_hour(amounts[at]);
                Policy::try_new(format!("of-{}", amounts[at]), algorithm, quota).expect("a policy")
            };
            let set = PolicySet::from([named(0), named(1)]);
            let limiters = [
                patient_limiter(redis.clone(), set.clone()),
                patient_limiter(MemoryStore::new(), set),
            ];
            for limiter in limiters {
                for cost in [6, 9, 10, u64::MAX] {
                    let error = limiter
                        .check("acme")
                        .cost(Cost::new(cost))
                        .await
                        .expect_err("one burst is 5");
                    assert_eq!(
                        error.kind(),
                        ErrorKind::CostExceedsBurst,
                        "{algorithm:?} {amounts:?} {cost}"
                    );
                    let text = error.to_string();
                    assert!(
                        text.contains(&format!("cost {cost} exceeds the burst 5 of policy of-5")),
                        "{text}"
                    );
                }
                let look = limiter.peek("acme").await.expect("an answer");
                assert!(
                    look.states()
                        .all(|state| state.remaining() == state.policy().quota().burst()),
                    "{look:?}"
                );
            }
        }
    }
    assert_eq!(server.keys_and_expires(), (0, 0));
}
