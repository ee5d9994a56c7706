//! Tests policies that change at run time, and clocks that step.

use tollgate_model::raw::QuotaParts;

use super::*;

/// Returns the longest time from exhausted to fresh, in microseconds.
fn drain(policy: &Policy) -> u64 {
    let quota = policy.quota();
    let (n, b, w) = (quota.amount(), quota.burst(), quota.period_us());
    match policy.algorithm() {
        algorithm if algorithm.is_continuous() => (b * w).div_ceil(n) + 1,
        algorithm if algorithm.has_burst() => b.div_ceil(n) * w,
        Algorithm::SlidingWindow => 2 * w,
        Algorithm::Lockout { longest, .. } => 2 * w.max(longest.as_micros() as u64),
        Algorithm::SlidingBuckets { buckets } => {
            let count = u64::from(buckets);
            (count + 1) * w.div_ceil(count)
        }
        _ => w,
    }
}

/// Returns a policy of the same algorithm with another quota.
fn with(policy: &Policy, quota: Quota) -> Policy {
    Policy::try_new("p", policy.algorithm(), quota).unwrap()
}

/// docs/algorithms.md, "Changed quotas": the numbers are those of the worst pairs of 3000 drawn
/// ones.
#[test]
fn rates_that_alternate_on_one_counter_give_units_back() {
    for (rates, most) in [([77_422, 90_930], 1_046), ([102_193, 516_360], 1_290)] {
        let policies =
            rates.map(|rate| Policy::token_bucket("p", quota(rate, 1_000_000).with_burst(1_000)));
        let mut bench = Bench::new(policies[1].clone());
        let (mut admitted, mut denied) = (0, 0);
        for policy in policies.iter().cycle() {
            bench.change(policy.clone());
            (admitted, denied) = if bench.admits(1) {
                (admitted + 1, 0)
            } else {
                (admitted, denied + 1)
            };
            if denied == policies.len() {
                break;
            }
        }
        assert_eq!(admitted, most, "{rates:?}");
    }
}

#[test]
fn a_quota_that_changes_often_never_shows_more_than_its_amount() {
    for policy in all(quota(8, 60), &[]) {
        let mut bench = Bench::new(policy.clone());
        let mut random = Random(17);
        for _ in 0..3_000 {
            let quota = quota(1 + random.below(8), 5 + random.below(60));
            bench.change(with(&policy, quota));
            bench.pass(random.below(9));
            let numbers = one(&bench.check(0));
            assert!(
                numbers.reset <= drain(bench.policy()),
                "{:?} {numbers:?}",
                bench.policy()
            );
            assert!(numbers.remaining <= quota.amount());
            if let Some(retry) = one(&bench.check(random.cost(bench.policy()))).retry {
                assert!(retry > 0 && retry <= drain(bench.policy()));
            }
        }
    }
}

/// For any old and new number of buckets, no interval of length W holds more than n units.
#[test]
fn sliding_buckets_with_a_new_layout_forget_no_unit_that_counts() {
    let mut bench = Bench::new(Policy::sliding_buckets("p", quota(5, 60), 6));
    let mut random = Random(4_711);
    let mut times = Vec::new();
    for _ in 0..20_000 {
        bench.pass(random.below(9));
        if random.below(3) == 0 {
            bench.change(Policy::sliding_buckets(
                "p",
                quota(5, 60),
                1 + random.below(20) as u16,
            ));
        }
        if bench.admits(1) {
            times.push(bench.now());
        }
        assert!(one(&bench.check(0)).reset <= drain(bench.policy()));
    }
    assert!(times.windows(6).all(|six| six[5] - six[0] >= 60));
    assert!(times.len() > 3_000);
}

#[test]
fn retry_after_is_exact_also_after_a_small_step_back_of_the_clock() {
    for (seed, policy) in (1..).zip(many()) {
        let bench = Bench::new(policy);
        let mut random = Random(seed * 65_537);
        for _ in 0..500 {
            bench.pass(random.step(bench.policy()));
            let back = random.step(bench.policy());
            bench.clock.set(bench.clock.now_us() - back);
            let cost = random.cost(bench.policy());
            if let Some(retry) = one(&bench.check(cost)).retry {
                let why = format!("{:?} {retry}", bench.policy());
                bench.pass(retry - 1);
                assert!(!bench.admits(cost), "{why}");
                assert!(bench.pass(1).admits(cost), "{why}");
            }
        }
    }
}

#[test]
fn a_lowered_sliding_window_counts_no_more_than_its_new_amount() {
    let mut bench = Bench::new(Policy::sliding_window("p", quota(1_000, 100)));
    assert_eq!(bench.at(10).take_all(), 1_000);
    bench.change(Policy::sliding_window("p", quota(10, 100)));
    // The previous window counts ten units. Nine of them are still in W after a tenth of the
    // window.
    assert_eq!(one(&bench.check(1)).retry, Some(100));
    assert!(bench.at(110).admits(1));
}

#[test]
fn a_clock_that_jitters_gives_no_unit_twice() {
    for policy in [
        Policy::sliding_log("p", quota(5, 60)),
        Policy::sliding_buckets("p", quota(5, 60), 6),
    ] {
        let bench = Bench::new(policy);
        let mut random = Random(99);
        let mut admitted = 0;
        for step in 0..60_000_i64 {
            bench.at(step - random.below(10) as i64);
            admitted += u64::from(bench.admits(1));
        }
        assert!((3_000..=5_005).contains(&admitted), "{admitted}");
    }
}
