//! Law 10: a clock that jumps gives at most one burst more, and denies for at most one drain time
//! longer.

use std::time::Duration;

use tollgate::{Algorithm, Policy, PolicySet, Quota};
use tollgate_test_support::{InMemory, InRedis, Subject, policies};

use crate::{drain, key, micros, on_every_store};

#[test]
fn law_10_a_clock_that_goes_back_keeps_a_drained_key_drained_until_the_time_to_retry() {
    on_every_store(|subject, dice, algorithm| {
        let policy = policies::policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        let period = policy.quota().period().as_micros() as u64;
        let refill = u128::from(period) * u128::from(policy.quota().burst())
            / u128::from(policy.quota().amount());
        let drain_us = policies::longest_us(&policy).max(refill as u64);
        // The units of a window or a sub-window still count while the next one lasts.
        let drain_us = if policies::accrues_exactly(algorithm) {
            drain_us
        } else {
            2 * drain_us
        };
        // In the middle of a window.
        let now = subject.now();
        subject.set_now(now - now % period + period / 2);
        drain(subject, &set);
        let steps = [
            1,
            period / 2 + 1,
            period,
            3 * period,
            1_000_000,
            3_600_000_000,
            86_400_000_000,
        ];
        let back = dice.pick(&steps).min(1_000_000_000_000_000);
        subject.set_now(subject.now() - back);
        let denied = subject.check(&set, &key(), 1);
        assert!(
            denied.is_denied(),
            "{policy:?}: {back} µs back admits a drained key"
        );
        let retry = micros(denied.retry_after());
        assert!(
            retry <= 2 * drain_us,
            "{policy:?}: {back} µs back, {retry} µs to wait"
        );
        subject.advance(retry - 1);
        assert!(subject.check(&set, &key(), 1).is_denied(), "{policy:?}");
        subject.advance(1);
        assert!(subject.check(&set, &key(), 1).is_allowed(), "{policy:?}");
    });
}

/// The bound of law 1 holds on a clock that never goes back while that of the store does, again and
/// again. A fixed and a sliding window admit one burst more each time that the clock falls by more
/// than a period.
#[test]
fn law_10_each_step_back_of_more_than_a_period_admits_one_burst_more_at_most_and_a_shorter_one_none()
 {
    on_every_store(|subject, dice, algorithm| {
        let policy = policies::small_policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        let period = policy.quota().period().as_micros() as u64;
        let extra = match algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => policy.quota().burst(),
            _ => 0,
        };
        // The time that has passed, the units admitted at it, and the falls before it.
        let mut admitted: Vec<(u64, u64, u64)> = Vec::new();
        let (mut passed, mut newest, mut falls) = (0, subject.now(), 0);
        for _ in 0..60 {
            admitted.push((passed, drain(subject, &set), falls));
            let now = subject.now();
            newest = newest.max(now);
            let edge = period - now % period;
            if dice.below(3) == 0 {
                let back = dice.pick(&[1, period / 2 + 1, period, period + 1, 2 * period + edge]);
                // Often to just before the end of a window.
                let before_end = (period - (now - back) % period) % period + 1;
                let back = back
                    + if dice.below(2) == 0 {
                        0
                    } else {
                        period.saturating_sub(before_end)
                    };
                subject.set_now(now - back);
                if newest > now - back + period {
                    (newest, falls) = (now - back, falls + 1);
                }
            } else {
                let waits = [1, edge, period / 3 + 1, period, 1 + dice.below(period)];
                let wait = dice.pick(&waits);
                subject.advance(wait);
                passed += wait;
            }
        }
        for (first, &(from, _, before)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(to, count, falls) in &admitted[first..] {
                sum += count;
                let most = policies::bound(&policy, to - from + 1) + (falls - before) * extra;
                assert!(
                    sum <= most,
                    "{policy:?}: {sum} in {} µs, {most} allowed",
                    to - from + 1
                );
            }
        }
    });
}

#[test]
fn law_10_a_fixed_window_admits_the_burst_more_that_a_step_back_of_more_than_a_period_allows() {
    let quota = Quota::new(10, Duration::from_secs(1));
    for (policy, again) in [
        (Policy::fixed_window("p", quota), 10),
        (Policy::sliding_window("p", quota), 0),
    ] {
        let set = PolicySet::from(policy.clone());
        for subject in [
            &mut InMemory::new() as &mut dyn Subject,
            &mut InRedis::new(),
        ] {
            let now = subject.now();
            let start = now - now % 1_000_000;
            subject.set_now(start);
            assert_eq!(drain(subject, &set), 10);
            subject.set_now(start - 1_000_001);
            assert_eq!(drain(subject, &set), 0, "{policy:?}");
            subject.advance(1);
            assert_eq!(drain(subject, &set), again, "{policy:?}");
        }
    }
}

#[test]
fn law_10_a_clock_that_jumps_forward_admits_one_burst_at_most() {
    on_every_store(|subject, dice, algorithm| {
        let policy = policies::policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        drain(subject, &set);
        let forward = dice.pick(&[1, 1_000_000, 3_600_000_000, 86_400_000_000]);
        subject.advance(forward);
        let passed = drain(subject, &set);
        assert!(
            passed <= policy.quota().burst(),
            "{policy:?}: {passed} after {forward} µs"
        );
    });
}
