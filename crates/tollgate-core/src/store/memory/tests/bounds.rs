//! Tests each bound with every pattern of arrivals over a short time.

use super::*;

const TICKS: usize = 10;

/// Returns the most units admitted in any half-open interval of each length. At each tick of a
/// pattern no request, one request, or as many requests as pass arrive.
fn most(policy: &Policy) -> [u64; TICKS + 1] {
    let mut most = [0; TICKS + 1];
    for pattern in 0..3_u64.pow(TICKS as u32) {
        let bench = Bench::new(policy.clone());
        let mut sums = [0; TICKS + 1];
        let mut rest = pattern;
        for tick in 0..TICKS {
            bench.at(tick as i64);
            sums[tick + 1] = sums[tick]
                + match rest % 3 {
                    0 => 0,
                    1 => u64::from(bench.admits(1)),
                    _ => bench.take_all(),
                };
            rest /= 3;
        }
        for from in 0..TICKS {
            for to in from + 1..=TICKS {
                most[to - from] = most[to - from].max(sums[to] - sums[from]);
            }
        }
    }
    most
}

fn assert_bound(policy: &Policy, bound: impl Fn(u64) -> u64, reached: &[usize]) {
    let most = most(policy);
    for (length, &most) in (1..).zip(&most[1..]) {
        assert!(most <= bound(length), "{policy:?}: {most} in {length}");
    }
    for &length in reached {
        assert_eq!(most[length], bound(length as u64), "{policy:?} in {length}");
    }
}

const N: u64 = 2;
const W: u64 = 4;

fn small() -> Quota {
    quota(N, W)
}

#[test]
fn a_token_bucket_admits_its_burst_and_the_accrued_units() {
    for burst in [1, 2, 3] {
        let quota = small().with_burst(burst);
        assert_bound(
            &Policy::token_bucket("p", quota),
            |length| burst + N * (length - 1) / W,
            &[1, 3, 5, 9],
        );
        assert_bound(
            &Policy::leaky_bucket("p", quota),
            |length| burst + N * (length - 1) / W,
            &[1, 3, 5, 9],
        );
    }
}

#[test]
fn an_interval_bucket_admits_its_burst_and_each_refill() {
    for burst in [1, 2, 3] {
        let policy = Policy::interval_bucket("p", small().with_burst(burst));
        assert_bound(
            &policy,
            |length| (burst - 1 + N.min(burst) * length.div_ceil(W)).max(burst),
            &[4, 8],
        );
    }
}

#[test]
fn a_fixed_window_admits_twice_the_amount_around_an_edge() {
    assert_bound(
        &Policy::fixed_window("p", small()),
        |length| N * (1 + (length - 1).div_ceil(W)),
        &[1, 2, 4, 5, 6],
    );
}

#[test]
fn a_window_from_first_hit_admits_twice_the_amount_minus_one() {
    let policy = Policy::window_from_first_hit("p", small());
    assert_bound(
        &policy,
        |length| N * (1 + (length - 1).div_ceil(W)) - u64::from(length > 1 && length <= W),
        &[1, 2, 4],
    );
}

#[test]
fn a_sliding_window_admits_at_most_twice_the_amount_minus_one() {
    let most = most(&Policy::sliding_window("p", small()));
    assert_eq!(most[W as usize], 2 * N - 1);
}

#[test]
fn sliding_buckets_and_the_log_never_admit_more_than_the_amount() {
    for buckets in [1, 2, 3, 4] {
        let policy = Policy::sliding_buckets("p", small(), buckets);
        assert_bound(&policy, |length| N * length.div_ceil(W), &[1, 2, 3, 4]);
    }
    assert_bound(
        &Policy::sliding_log("p", small()),
        |length| N * length.div_ceil(W),
        &[1, 2, 3, 4, 5, 8, 9],
    );
}
