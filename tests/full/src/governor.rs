//! `tower_governor`, by the crate `governor` that decides inside it.

use std::{num::NonZeroU32, time::Duration};

use governor::{RateLimiter, clock::FakeRelativeClock};
use tollgate::{Policy, Quota};
use tollgate_test_support::traces::{SECOND, assert_same_admissions, in_process, trace};

/// Returns what `GovernorConfigBuilder::default().per_second(seconds).burst_size(burst)` builds.
fn governor(seconds: u64, burst: u32) -> impl FnMut(u64) -> bool {
    let quota = governor::Quota::with_period(Duration::from_secs(seconds)).expect("a period");
    let quota = quota.allow_burst(NonZeroU32::new(burst).expect("a burst"));
    let clock = FakeRelativeClock::default();
    let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
    let mut last = 0;
    move |now| {
        clock.advance(Duration::from_micros(now - last));
        last = now;
        limiter.check().is_ok()
    }
}

const SAME: Policy = Policy::token_bucket(
    "api",
    Quota::one_every(Duration::from_secs(4)).with_burst(8),
);

#[test]
fn one_every_four_seconds_admits_what_per_second_4_of_tower_governor_admits() {
    let gaps = [
        0,
        1,
        499_999,
        SECOND,
        4 * SECOND - 1,
        4 * SECOND,
        4 * SECOND + 1,
        30 * SECOND,
    ];
    for seed in 0..20 {
        assert_same_admissions(&trace(seed, 400, &gaps), governor(4, 8), in_process(SAME));
    }
}

#[test]
fn the_same_name_admits_sixteen_times_the_rate() {
    let copied = Policy::token_bucket("api", Quota::per_second(4).with_burst(8));
    let polls: Vec<_> = (0..=6_000).map(|tick| tick * SECOND / 10).collect();
    let count =
        |mut admits: Box<dyn FnMut(u64) -> bool>| polls.iter().filter(|now| admits(**now)).count();
    let [theirs, same, copied] = [
        count(Box::new(governor(4, 8))),
        count(Box::new(in_process(SAME))),
        count(Box::new(in_process(copied))),
    ];
    assert_eq!(
        (theirs, same, copied),
        (8 + 150, 8 + 150, 8 + 16 * 150),
        "in ten minutes, after the burst"
    );
}
