//! Tests debts: units that were charged although they did not fit.

use tollgate_model::raw::QuotaParts;

use super::*;
use crate::store::{ReservationId, Settlement};

impl Bench {
    /// Reserves one unit and commits `cost`, so that the rest is charged as a debt.
    fn owe(&self, cost: u64) {
        let id = ReservationId::random();
        let check = |cost| Check::new(&self.set, &self.key, Cost::new(cost));
        let decision = self.store.reserve_now(check(0), &id, 1_000);
        assert!(decision.is_allowed());
        assert_eq!(
            self.store.commit_now(check(cost), &id, 1),
            Settlement::Settled
        );
    }
}

/// The longest time from the greatest debt to fresh, in microseconds.
fn longest(policy: &Policy) -> u64 {
    let (n, b, w) = (
        policy.quota().amount(),
        policy.quota().burst(),
        policy.quota().period_us(),
    );
    match policy.algorithm() {
        algorithm if algorithm.is_continuous() => (8 * b * w).div_ceil(n) + 1,
        algorithm if algorithm.has_burst() => (8 * b).div_ceil(n) * w,
        Algorithm::Lockout { longest, .. } => 2 * w.max(longest.as_micros() as u64),
        _ => 2 * w + 4,
    }
}

/// Laws 10 and 11 for a key in debt.
#[test]
fn a_debt_survives_a_clock_that_steps_and_a_quota_that_changes_within_its_bound() {
    for policy in all(quota(10, 1_000), &[4]) {
        let mut bench = Bench::new(policy.clone());
        let burst = policy.quota().burst();
        bench.owe(3 * burst);
        let before = one(&bench.check(0)).reset;
        assert!(one(&bench.check(1)).retry.is_some());
        let stored = bench.peek();
        bench.at(-1);
        assert!(
            one(&bench.check(0)).reset >= before,
            "{policy:?}: a step back forgives nothing"
        );
        bench.at(0);
        assert_eq!(bench.peek(), stored, "{policy:?}");
        for back in [500, 5_000, 1_000_000] {
            bench.at(-back);
            assert!(!bench.admits(1), "{policy:?}");
            assert!(
                one(&bench.check(0)).reset <= longest(&policy) + 2_000,
                "{policy:?} {back}"
            );
        }
        let bench_of = |amount, period| {
            Policy::try_new("p", policy.algorithm(), quota(amount, period)).unwrap()
        };
        for (amount, period) in [(10, 100), (1, 1_000), (5, 1_000), (1_000, 1_000)] {
            bench.change(bench_of(amount, period));
            let _ = bench.check(1);
            let numbers = one(&bench.check(0));
            assert!(
                numbers.reset <= longest(bench.policy()),
                "{:?} {numbers:?}",
                bench.policy()
            );
        }
    }
}

/// A debt is paid to the unit: what was owed and what is admitted later add up to what accrues.
#[test]
fn a_bucket_pays_its_debt_with_what_accrues_and_no_more() {
    for policy in [
        Policy::token_bucket("p", quota(10, 1_000)),
        Policy::leaky_bucket("p", quota(10, 1_000)),
        Policy::interval_bucket("p", quota(10, 1_000)),
    ] {
        let bench = Bench::new(policy.clone());
        bench.owe(35);
        let mut admitted = 0;
        for _ in 0..10_050 {
            bench.pass(1);
            admitted += u64::from(bench.admits(1));
        }
        // A burst of 10 and 10 more in each of ten periods.
        assert_eq!(admitted, 10 + 10 * 10 - 35, "{policy:?}");
    }
}

#[test]
fn a_bucket_whose_debt_is_paid_is_stored_as_before() {
    for policy in all(quota(10, 1_000), &[]) {
        let [paid, fresh] = [(); 2].map(|()| Bench::new(policy.clone()));
        paid.owe(35);
        for bench in [&paid, &fresh] {
            bench.at(9_005);
            assert!(bench.admits(3), "{policy:?}");
        }
        assert_eq!(paid.peek(), fresh.peek(), "{policy:?}");
    }
}

/// A debt of 10¹⁵ units is as many as the mark of a debt.
#[test]
fn a_refund_forgives_no_debt_that_is_as_large_as_its_mark() {
    let burst = 999_999_999_999_999;
    let bench = Bench::new(Policy::interval_bucket("p", quota(burst, 1_000)));
    bench.owe(burst + 2);
    bench.refund(1, None);
    assert!(!bench.admits(1));
    bench.pass(1_000);
    assert_eq!(bench.remaining(), burst - 1);
}

#[test]
fn a_queue_takes_back_its_last_place_alone() {
    let bench = Bench::new(Policy::leaky_bucket("p", quota(10, 1_000)));
    let [_, middle, last] = [(); 3].map(|()| bench.check(1));
    assert_eq!(last.delay(), Duration::from_micros(200));
    bench.refund(1, Some(&middle));
    let next = bench.check(1);
    assert_eq!(
        next.delay(),
        Duration::from_micros(300),
        "no other request has this turn"
    );
    bench.refund(1, Some(&next));
    assert_eq!(
        bench.check(1).delay(),
        Duration::from_micros(300),
        "the last place is free again"
    );
}
