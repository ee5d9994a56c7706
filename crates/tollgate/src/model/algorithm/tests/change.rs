//! Tests policies that change at run time, and clocks that step.

use super::*;

/// Returns the longest time from exhausted to fresh, in microseconds.
fn drain(policy: &Policy) -> u64 {
    let (quota, layout) = (policy.quota(), policy.buckets());
    let (n, b, w) = (quota.amount(), quota.burst(), quota.period_us());
    match policy.algorithm() {
        algorithm if algorithm.is_continuous() => (b * w).div_ceil(n) + 1,
        algorithm if algorithm.has_burst() => b.div_ceil(n) * w,
        Algorithm::SlidingWindow => 2 * w,
        Algorithm::Lockout { longest, .. } => 2 * w.max(longest.as_micros() as u64),
        Algorithm::SlidingBuckets { .. } => (layout.count + 1) * layout.width_us,
        _ => w,
    }
}

/// Returns a policy of the same algorithm with another quota.
fn with(policy: &Policy, quota: Quota) -> Policy {
    Policy::try_new("p", policy.algorithm(), quota).unwrap()
}

#[test]
fn a_raised_quota_is_usable_at_once() {
    for policy in all(Quota::per_hour(10), &[]) {
        let mut bench = Bench::new(policy);
        bench.pass(3_599_000_000);
        assert_eq!(bench.take_all(), 10);
        for quota in [Quota::per_hour(1_000), Quota::per_second(1_000)] {
            bench.change(with(bench.policy(), quota));
            assert!(
                bench.remaining() >= 989,
                "{:?} {:?}",
                bench.policy(),
                bench.peek()
            );
            assert!(bench.admits(1));
        }
    }
}

/// docs/algorithms.md, "Changed quotas": the numbers are those of the worst pairs of 3000 drawn ones.
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
fn a_lowered_quota_holds_at_once_and_no_wait_exceeds_its_drain_time() {
    for policy in all(quota(1_000, 60_000_000), &[]) {
        for (amount, period) in [
            (10, 60_000_000),
            (10, 1_000),
            (10, 3_600_000_000),
            (1_000, 3_600_000_000),
            (1, 77),
        ] {
            let mut bench = Bench::new(policy.clone());
            bench.pass(31_415_926);
            assert_eq!(bench.take_all(), 1_000);
            bench.change(with(&policy, quota(amount, period)));
            let numbers = one(&bench.check(0));
            let why = format!("{:?} {numbers:?}", bench.policy());
            assert!(numbers.reset <= drain(bench.policy()), "{why}");
            assert!(bench.take_all() <= amount, "{why}");
            let denied = one(&bench.check(amount));
            assert!(denied.retry.unwrap() <= drain(bench.policy()), "{why}");
            bench.pass(denied.retry.unwrap() - 1);
            assert!(!bench.admits(amount), "{why}");
            assert!(bench.pass(1).admits(amount), "{why}");
        }
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
fn another_algorithm_under_the_same_name_starts_fresh() {
    let policies = all(quota(4, 1_000), &[]);
    for from in &policies {
        for to in &policies {
            let mut bench = Bench::new(from.clone());
            bench.take_all();
            bench.change(to.clone());
            let same = from.algorithm().reads(to.algorithm());
            assert_eq!(
                bench.remaining(),
                if same { 0 } else { 4 },
                "{from:?} {to:?}"
            );
        }
    }
}

/// A step back adds at most one drain time of waiting. A step forward gives at most one burst.
#[test]
fn a_clock_step_costs_at_most_one_drain_time_or_one_burst() {
    for policy in many() {
        let drain = drain(&policy);
        for back in [1, drain / 2, drain, drain + 1, 3 * drain, 1_000_000 * drain] {
            let bench = Bench::new(policy.clone());
            let ahead = bench.take_all();
            bench.clock.set(bench.clock.now_us().saturating_sub(back));
            let before = bench.take_all();
            assert_eq!(
                before, 0,
                "{policy:?} back {back} gave {before} after {ahead}"
            );
            let numbers = one(&bench.check(1));
            let why = format!("{policy:?} back {back} {numbers:?}");
            assert!(
                numbers.retry.unwrap() <= numbers.reset && numbers.reset <= 2 * drain,
                "{why}"
            );
            bench.pass(numbers.retry.unwrap() - 1);
            assert!(!bench.admits(1), "{why}");
            assert!(bench.pass(1).admits(1), "{why}");
            bench.pass(3 * drain);
            assert_eq!(bench.take_all(), policy.quota().burst(), "{why}");
        }
    }
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
