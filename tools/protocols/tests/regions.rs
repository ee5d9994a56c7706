//! The rules for several regions: no state violates an invariant, and each mistake is found.

mod table;

use table::{mistake_is_found, row_holds};
use tollgate_protocols::{
    explorer::walk,
    regions::{MISTAKES, ROWS, Setting},
};

/// Explores a short row, and compares the number of its states.
fn holds(name: &str) {
    let row = ROWS.iter().find(|row| row.name == name).expect("a row");
    row_holds(row);
}

#[test]
fn units_are_safe_while_messages_are_lost() {
    holds("lost");
}

#[test]
fn units_are_safe_while_messages_are_repeated() {
    holds("repeated");
}

#[test]
fn units_are_safe_while_the_home_fails_over_and_the_old_one_lives() {
    holds("home");
}

#[test]
fn units_are_safe_while_a_clock_steps() {
    holds("clock");
}

#[test]
fn units_are_safe_while_they_are_returned() {
    holds("returns");
}

#[test]
fn units_are_safe_over_many_periods() {
    holds("periods");
}

#[test]
fn units_are_safe_while_a_region_fails_over() {
    holds("region");
}

#[test]
fn units_are_safe_while_a_home_drains() {
    holds("drain");
}

#[test]
fn every_short_row_is_explored_by_a_test() {
    let short: Vec<_> = ROWS
        .iter()
        .filter(|row| row.states.is_some())
        .map(|row| row.name)
        .collect();
    let source = include_str!("regions.rs");
    for name in short {
        assert!(
            source.contains(&format!("    holds(\"{name}\");")),
            "{name}"
        );
    }
}

#[test]
fn each_seeded_mistake_is_found_by_its_invariant_and_nothing_without_it() {
    for seeded in &MISTAKES {
        mistake_is_found(seeded);
    }
}

#[test]
fn random_walks_with_all_faults_violate_nothing_and_use_whole_periods() {
    let walked = walk(1, 2_000, Setting::some_faults, |setting, world| {
        world.used_periods(setting) > 0
    });
    if let Some(violation) = walked.violation {
        panic!("{violation}");
    }
    assert!(
        walked.met > 500,
        "{} of 2000 used all of a period",
        walked.met
    );
}
