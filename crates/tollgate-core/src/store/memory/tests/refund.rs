//! Tests refunds.

use super::*;

#[test]
fn a_refund_returns_at_most_the_spent_units_and_creates_no_state() {
    for policy in many() {
        let bench = Bench::new(policy);
        bench.refund(1, None);
        assert!(bench.store.is_empty());
        let decision = bench.check(1);
        bench.refund(u64::MAX, Some(&decision));
        assert_eq!(bench.remaining(), bench.policy().quota().burst());
        assert!(bench.store.is_empty(), "{:?}", bench.policy());
        let _ = bench.check(1);
        bench.refund(u64::MAX, None);
        assert_eq!(bench.remaining(), bench.policy().quota().burst());
    }
}

#[test]
fn a_sliding_window_refunds_the_window_of_the_request() {
    let bench = Bench::new(Policy::sliding_window("p", quota(4, 100)));
    let spent = bench.check(4);
    let _ = bench.at(180).check(3);
    assert_eq!(
        one(&bench.check(0)),
        One {
            allowed: true,
            remaining: 0,
            retry: None,
            reset: 120,
            more: 20
        }
    );
    bench.refund(2, Some(&spent));
    // The previous window holds two units, and a fifth of it counts.
    assert_eq!(one(&bench.check(0)).remaining, 0);
    bench.refund(2, Some(&spent));
    assert_eq!(one(&bench.check(0)).remaining, 1);
}

/// A refund without a decision has no time. No interval may hold more than n units afterwards.
#[test]
fn a_refund_without_a_decision_returns_the_oldest_units_first() {
    for policy in [
        Policy::sliding_log("p", quota(4, 100)),
        Policy::sliding_buckets("p", quota(4, 100), 10),
    ] {
        let bench = Bench::new(policy);
        let _ = bench.at(5).check(2);
        let _ = bench.at(55).check(2);
        let before = one(&bench.check(0)).reset;
        bench.at(75).refund(2, None);
        assert_eq!(bench.remaining(), 2);
        assert_eq!(one(&bench.check(0)).reset, before - 20);
        assert_eq!(one(&bench.check(0)).more, before - 20);
    }
}

#[test]
fn a_refund_returns_units_to_the_time_of_the_request() {
    for policy in [
        Policy::sliding_log("p", quota(4, 100)),
        Policy::sliding_buckets("p", quota(4, 100), 10),
    ] {
        let bench = Bench::new(policy);
        let _ = bench.at(5).check(1);
        let second = bench.at(25).check(1);
        let _ = bench.at(55).check(2);
        let (first, reset) = (one(&bench.check(0)).more, one(&bench.check(0)).reset);
        bench.refund(1, Some(&second));
        let peeked = one(&bench.check(0));
        assert_eq!(
            (peeked.remaining, peeked.more, peeked.reset),
            (1, first, reset),
            "{:?}",
            bench.policy()
        );
        // After the first unit has expired, the units spent at 55 are next.
        bench.pass(first);
        assert_eq!(one(&bench.check(0)).more, reset - first);
    }
}

/// The units were spent while the burst was more than eight times as great.
#[test]
fn a_refund_without_a_decision_returns_all_units_after_a_lowered_burst() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        for cost in [100, 1_000, u64::MAX] {
            let policy = |burst| {
                let quota = quota(100, 1_000_000).with_burst(burst);
                Policy::try_new("p", algorithm, quota).unwrap()
            };
            let mut bench = Bench::new(policy(100));
            assert_eq!(bench.take_all(), 100);
            bench.change(policy(10));
            bench.refund(cost, None);
            let left = one(&bench.check(0));
            assert_eq!(
                (left.remaining, left.reset),
                (10, 0),
                "{algorithm:?} {cost}"
            );
        }
    }
}
