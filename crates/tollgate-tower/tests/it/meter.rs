//! The counts of a meter.

use tollgate::{Cost, Costs, Policy, PolicySet, Quota};
use tollgate_tower::Meter;

fn policies() -> PolicySet {
    PolicySet::from(
        ["requests", "tokens"].map(|name| Policy::token_bucket(name, Quota::per_minute(10))),
    )
}

#[test]
fn counts_of_clones_are_one_count_and_stay_at_the_greatest_number() {
    let meter = Meter::new();
    assert_eq!((meter.get(), meter.has_counted()), (None, false));
    let clone = meter.clone();
    clone.add(2);
    meter.add(3);
    assert_eq!((meter.get(), clone.get()), (Some(5), Some(5)));
    meter.add(u64::MAX);
    assert_eq!(meter.get(), Some(u64::MAX - 1));
    meter.add(1);
    assert_eq!(meter.get(), Some(u64::MAX - 1));
    meter.set(u64::MAX);
    assert_eq!(meter.get(), Some(u64::MAX - 1));
    meter.set(0);
    assert_eq!((meter.get(), meter.has_counted()), (Some(0), true));
}

#[test]
fn the_first_count_may_be_the_greatest_number() {
    let meter = Meter::new();
    meter.add(u64::MAX);
    assert_eq!(meter.get(), Some(u64::MAX - 1));
}

#[test]
fn a_policy_without_a_count_of_its_own_has_the_common_count() {
    let meter = Meter::for_policies(&policies());
    let estimate = || Costs::from([("requests", 1), ("tokens", 850)]);
    assert_eq!(meter.costs(estimate()), estimate());
    assert!(meter.counter("bytes").is_none());
    let tokens = meter.counter("tokens").unwrap();
    tokens.set(0);
    assert!(meter.has_counted());
    assert_eq!(
        (meter.counted("tokens"), meter.counted("requests")),
        (Some(0), None)
    );
    assert_eq!(
        meter.costs(estimate()),
        Costs::from([("requests", 1), ("tokens", 0)])
    );
    meter.add(7);
    assert_eq!(
        (meter.counted("tokens"), meter.counted("requests")),
        (Some(0), Some(7))
    );
    assert_eq!(
        meter.costs(estimate()),
        Costs::from([("requests", 7), ("tokens", 0)])
    );
    assert_eq!(
        format!("{meter:?}"),
        r#"{"requests": None, "tokens": Some(0), "..": Some(7)}"#
    );
}

#[test]
fn a_meter_without_policies_has_one_cost_for_all() {
    let meter = Meter::new();
    assert!(meter.counter("tokens").is_none());
    let estimate = Costs::new(Cost::new(850));
    assert_eq!(meter.costs(estimate.clone()), estimate);
    meter.add(7);
    assert_eq!(meter.counted("tokens"), Some(7));
    assert_eq!(meter.costs(estimate), Costs::new(Cost::new(7)));
}

#[test]
fn threads_lose_no_unit() {
    let meter = Meter::for_policies(&policies());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let tokens = meter.counter("tokens").unwrap();
            scope.spawn(move || (0..1000).for_each(|_| tokens.add(1)));
        }
    });
    assert_eq!(meter.counted("tokens"), Some(4000));
}
