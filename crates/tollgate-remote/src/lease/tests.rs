use std::time::Duration;

use super::{
    demand::Demand,
    held_units::{Grant, HeldUnits, Report, Stamp},
};
use tollgate_core::{Decision, Lease, MemoryStore, Store, store::Check};

const TERMS: Lease = Lease::new().generation(Duration::from_millis(500)).share(4);

/// Returns the decision of a store in the process.
pub(super) fn decide(store: &MemoryStore, check: Check<'_>) -> Decision {
    let answer = store.check(check).into_ready().expect("at once");
    answer.expect("a decision")
}

fn grant(generation: u64, units: u64, life_us: u64) -> Grant {
    Grant {
        stamps: [Stamp {
            birth: 1,
            generation,
        }]
        .into_iter()
        .collect(),
        units,
        life_us,
    }
}

#[test]
fn the_oldest_units_are_spent_first() {
    let mut units = HeldUnits::default();
    units.add(0, grant(2, 5, 2_000));
    units.add(0, grant(1, 3, 1_000));
    assert_eq!(units.held(0), 8);
    assert_eq!(units.spend(0, 1, 2).unwrap()[0].generation, 1);
    // One unit of the older grant is left, so a cost of two comes from the newer one.
    assert_eq!(units.spend(0, 1, 2).unwrap()[0].generation, 2);
    assert_eq!(units.spend(0, 1, 1).unwrap()[0].generation, 1);
    assert_eq!(units.spend(0, 1, 4), None);
}

#[test]
fn spending_stops_a_thousandth_before_the_end_counted_from_the_call() {
    let mut units = HeldUnits::default();
    units.add(500, grant(1, 3, 10_000));
    assert!(units.spend(500 + 9_989, 1, 1).is_some());
    assert!(units.spend(500 + 9_990, 1, 1).is_none());
    assert_eq!(units.held(500 + 9_990), 0);
}

#[test]
fn a_report_is_taken_once() {
    let mut units = HeldUnits::default();
    units.add(0, grant(1, 10, 10_000));
    units.spend(0, 1, 4);
    let stamps = grant(1, 0, 0).stamps;
    assert_eq!(
        units.take_reports(1, false),
        [Report {
            stamps: stamps.clone(),
            spent: 4,
            returned: 0
        }]
    );
    assert_eq!(units.take_reports(1, false), []);
    assert_eq!(
        units.take_reports(1, true),
        [Report {
            stamps,
            spent: 0,
            returned: 6
        }]
    );
    assert_eq!((units.take_reports(1, true), units.held(1)), (vec![], 0));
}

#[test]
fn a_grant_is_forgotten_once_all_of_its_units_are_spent_and_reported() {
    let mut units = HeldUnits::default();
    for generation in 0..3 {
        units.add(0, grant(generation, 1, 10_000));
        units.spend(0, 1, 1);
        assert_eq!(units.take_reports(1, false).len(), 1);
    }
    let held = format!("{units:?}");
    assert!(held.contains("grants: []"), "{held}");
}

#[test]
fn units_that_ended_are_counted_and_not_returned() {
    let mut units = HeldUnits::default();
    units.add(0, grant(1, 10, 10_000));
    units.spend(0, 1, 3);
    let stamps = grant(1, 0, 0).stamps;
    assert_eq!(
        units.take_reports(9_990, true),
        [Report {
            stamps,
            spent: 3,
            returned: 0
        }]
    );
    assert_eq!((units.take_lapsed(), units.take_lapsed()), (7, 0));
    units.add(9_990, grant(2, 5, 10_000));
    units.clear();
    assert_eq!((units.take_lapsed(), units.held(9_990)), (5, 0));
}

#[test]
fn a_refund_comes_back_into_the_pot_until_it_is_reported_or_ends() {
    let mut units = HeldUnits::default();
    units.add(0, grant(1, 10, 10_000));
    units.spend(0, 5, 4);
    assert!(units.refund(1, 5, 3).is_some());
    assert_eq!(units.held(1), 9);
    assert!(units.refund(1, 5, 2).is_none(), "one unit is spent");
    assert!(units.refund(9_990, 5, 1).is_none(), "the grant has ended");
    let _ = units.take_reports(1, false);
    assert!(units.refund(1, 5, 1).is_none(), "the unit was reported");
    units.clear();
    assert_eq!(units.held(1), 0);
}

#[test]
fn units_that_were_reported_are_not_exchanged_for_those_of_a_later_decision() {
    let mut units = HeldUnits::default();
    units.add(0, grant(1, 10, 10_000));
    units.spend(0, 5, 1);
    let _ = units.take_reports(1, false);
    units.spend(2, 7, 1);
    assert!(units.refund(3, 5, 1).is_none(), "the unit was reported");
    assert_eq!(units.held(3), 8);
    assert!(units.refund(3, 7, 1).is_some());
    assert_eq!(units.held(3), 9);
}

/// The server's clock goes back, or a reply that was long under way has a time that has passed.
#[test]
fn times_of_decisions_that_go_back_show_no_reported_unit_as_unreported() {
    let mut units = HeldUnits::default();
    units.add(0, grant(1, 10, 10_000));
    units.spend(0, 9, 1);
    units.spend(1, 5, 1);
    let _ = units.take_reports(2, false);
    units.spend(3, 8, 1);
    assert!(units.refund(4, 9, 1).is_none(), "the unit was reported");
    units.spend(5, 10, 1);
    assert!(units.refund(6, 10, 1).is_some());
}

#[test]
fn units_of_a_grant_that_has_ended_are_not_exchanged_for_those_of_another() {
    let mut units = HeldUnits::default();
    units.add(0, grant(1, 3, 1_000));
    units.add(0, grant(2, 5, 2_000));
    units.spend(10, 10, 1);
    units.spend(1_500, 1_500, 1);
    assert!(
        units.refund(1_500, 10, 1).is_none(),
        "the server charges the unit when it lapses"
    );
    let _ = units.take_reports(1_600, false);
    units.spend(1_700, 1_700, 1);
    assert!(units.refund(1_700, 1_700, 1).is_some());
}

#[test]
fn a_decision_from_before_the_first_unit_was_spent_gives_none_back() {
    let mut units = HeldUnits::default();
    units.add(0, grant(1, 10, 10_000));
    units.spend(0, 5, 1);
    assert!(units.refund(1, 4, 1).is_none());
    assert!(units.refund(1, 5, 1).is_some());
}

#[test]
fn nothing_is_wanted_until_the_rate_is_known_and_pays() {
    let mut demand = Demand::new(0);
    demand.count(1);
    assert_eq!(demand.want(0, TERMS), 0);
    // 1000 units a second for three seconds: those of a generation of half a second.
    let mut want = 0;
    for at in 1..=30 {
        demand.count(100);
        want = demand.want(at * 100_000, TERMS);
    }
    assert!((490..=500).contains(&want), "{want}");
    // One unit a second is 0.5 in a generation.
    for at in 4..=20 {
        demand.count(1);
        want = demand.want(at * 1_000_000, TERMS);
    }
    assert_eq!(want, 0);
}
