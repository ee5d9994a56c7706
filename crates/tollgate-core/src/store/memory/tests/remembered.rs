//! Tests that a remembered denial ages to the same numbers as the stored state.

use tollgate_model::{
    algorithm::{PolicyLevel, later, numbers},
    raw::{DecisionParts, PolicyParts},
};

use super::*;
use crate::Decision;

/// Returns the level of the only policy of a decision.
fn only(decision: &Decision) -> PolicyLevel {
    decision
        .levels()
        .iter(decision.policies())
        .map(|(_, level)| level)
        .next()
        .unwrap()
}

#[test]
fn a_remembered_denial_ages_as_the_stored_state_does() {
    let quotas = [
        Quota::new(3, Duration::from_micros(1_000)),
        Quota::new(7, Duration::from_micros(385)),
        Quota::per_day(5),
    ];
    for quota in quotas {
        let policies = [
            Policy::token_bucket("p", quota),
            Policy::leaky_bucket("p", quota),
            Policy::interval_bucket("p", quota.with_burst(2 * quota.amount())),
            Policy::fixed_window("p", quota),
            Policy::window_from_first_hit("p", quota),
            Policy::sliding_window("p", quota),
            Policy::sliding_buckets("p", quota, 5),
            Policy::sliding_log("p", quota),
        ];
        let period = quota.period().as_micros() as u64;
        for policy in policies {
            for (start, cost) in [
                (0, 1),
                (period / 3, 1),
                (period / 2, 2),
                (period - 1, quota.amount()),
            ] {
                let bench = Bench::new(policy.clone());
                bench.pass(start);
                while bench.admits(1) {
                    bench.pass(period / 50);
                }
                let denial = bench.check(cost);
                assert!(denial.is_denied());
                let retry = denial.retry_after().unwrap().as_micros() as u64;
                for share in 0..20 {
                    let passed = retry * share / 20;
                    let other = Bench {
                        store: bench.store.clone(),
                        set: bench.set.clone(),
                        key: bench.key.clone(),
                        clock: bench.clock.clone(),
                    };
                    let at = bench.now();
                    other.pass(passed);
                    let expected = other.check(cost);
                    assert!(expected.is_denied());
                    let aged = later(&policy, &only(&denial), denial.at_us(), passed, cost);
                    assert!(!aged.fits, "{policy:?} after {passed} of {retry} µs");
                    let expected = numbers(&policy, &only(&expected), cost);
                    let aged = numbers(&policy, &aged, cost);
                    // The remembered denial does not know which entries of a log or of buckets have
                    // expired since. It knows the times.
                    assert_eq!(
                        (aged.retry_us, aged.reset_us),
                        (expected.retry_us, expected.reset_us),
                        "{policy:?}"
                    );
                    if policy.reading_len() < 4 {
                        assert_eq!(aged, expected, "{policy:?} after {passed} of {retry} µs");
                    }
                    bench.at(at as i64);
                }
                let aged = later(&policy, &only(&denial), denial.at_us(), retry, cost);
                assert!(aged.fits, "{policy:?} after all of {retry} µs");
            }
        }
    }
}
