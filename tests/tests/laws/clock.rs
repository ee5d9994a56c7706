//! Law 10: a clock that jumps gives at most one burst more, and denies for at most one drain time longer.

use tollgate::PolicySet;
use tollgate_test_support::policies;

use crate::{drain, key, micros, on_both_stores};

#[test]
fn law_10_a_clock_that_goes_back_admits_nothing_twice() {
    on_both_stores(|subject, dice, algorithm| {
        let policy = policies::policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        let period = policy.quota().period().as_micros() as u64;
        let refill = u128::from(period) * u128::from(policy.quota().burst()) / u128::from(policy.quota().amount());
        let drain_us = period.max(refill as u64);
        // The units of a window or a sub-window still count while the next one lasts.
        let drain_us = if policies::accrues_exactly(algorithm) { drain_us } else { 2 * period };
        // In the middle of a window.
        let now = subject.now();
        subject.set_now(now - now % period + period / 2);
        drain(subject, &set);
        let steps = [1, period / 2 + 1, period, 3 * period, 1_000_000, 3_600_000_000, 86_400_000_000];
        let back = dice.pick(&steps).min(1_000_000_000_000_000);
        subject.set_now(subject.now() - back);
        let denied = subject.check(&set, &key(), 1);
        assert!(denied.is_denied(), "{policy:?}: {back} µs back admits a drained key");
        let retry = micros(denied.retry_after());
        assert!(retry <= 2 * drain_us, "{policy:?}: {back} µs back, {retry} µs to wait");
        subject.advance(retry - 1);
        assert!(subject.check(&set, &key(), 1).is_denied(), "{policy:?}");
        subject.advance(1);
        assert!(subject.check(&set, &key(), 1).is_allowed(), "{policy:?}");
    });
}

#[test]
fn law_10_a_clock_that_jumps_forward_admits_one_burst_at_most() {
    on_both_stores(|subject, dice, algorithm| {
        let policy = policies::policy(dice, "p", algorithm);
        let set = PolicySet::from(policy.clone());
        drain(subject, &set);
        let forward = dice.pick(&[1, 1_000_000, 3_600_000_000, 86_400_000_000]);
        subject.advance(forward);
        let passed = drain(subject, &set);
        assert!(passed <= policy.quota().burst(), "{policy:?}: {passed} after {forward} µs");
    });
}
