//! The random policies of a schedule.

use std::time::Duration;

use tollgate::{Lease, Policy, Quota};

use crate::random::Random;

pub(super) fn policy(random: &mut Random, at: usize, lease: Lease) -> Policy {
    use tollgate::Algorithm as A;
    let algorithms = [
        A::TokenBucket,
        A::TokenBucket,
        A::FixedWindow,
        A::WindowFromFirstHit,
        A::SlidingBuckets { buckets: 4 },
        A::SlidingBuckets { buckets: 1 },
        A::SlidingLog,
        A::SlidingWindow,
        A::IntervalBucket,
    ];
    let algorithm = random.pick(&algorithms);
    policy_of(random, at, lease, algorithm)
}

pub(super) fn policy_of(
    random: &mut Random,
    at: usize,
    lease: Lease,
    algorithm: tollgate::Algorithm,
) -> Policy {
    use tollgate::Algorithm as A;
    let amount = random.pick(&[32, 40, 96]);
    let period = Duration::from_micros(random.pick(&[50_000, 100_000, 350_001, 1_000_000]));
    let mut quota = Quota::new(amount, period);
    if matches!(algorithm, A::TokenBucket | A::IntervalBucket) {
        quota = quota.with_burst(random.pick(&[32, 64]));
    }
    let policy = Policy::try_new(if at == 0 { "a" } else { "b" }, algorithm, quota);
    policy
        .and_then(|policy| policy.try_leased(lease))
        .unwrap_or_else(|error| unreachable!("{error}"))
}
