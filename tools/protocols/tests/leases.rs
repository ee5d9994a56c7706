//! The rules of leases: no state violates an invariant, and each mistake is found.

mod table;

use table::{mistake_is_found, row_holds};
use tollgate_protocols::leases::{mistakes, rows};

/// Explores a short row, and compares the number of its states.
fn holds(name: &str) {
    let row = rows().into_iter().find(|row| row.name == name);
    let row = row.expect("a row");
    row_holds(&row);
}

#[test]
fn units_lapse_when_the_server_has_charged_them() {
    holds("window-lives");
    holds("bucket-lives");
}

#[test]
fn units_are_safe_while_messages_are_lost_and_units_returned() {
    holds("window-lost");
    holds("bucket-lost");
}

#[test]
fn units_are_safe_while_two_calls_of_a_process_are_under_way() {
    holds("window-late");
}

#[test]
fn units_are_safe_while_a_process_ends() {
    holds("bucket-crash");
}

#[test]
fn no_more_than_the_promise_is_admitted_after_the_state_is_lost() {
    holds("bucket-empty");
}

#[test]
fn no_more_than_the_promise_is_admitted_after_a_server_with_an_older_state_takes_over() {
    holds("window-copy");
}

#[test]
fn units_are_safe_while_the_clock_of_the_server_steps() {
    holds("bucket-clock");
}

#[test]
fn every_short_row_is_explored_by_a_test() {
    let source = include_str!("leases.rs");
    for row in rows().iter().filter(|row| row.states.is_some()) {
        let call = format!("    holds(\"{}\");", row.name);
        assert!(source.contains(&call), "{}", row.name);
    }
}

#[test]
fn each_seeded_mistake_is_found_by_its_invariant_and_nothing_without_it() {
    for seeded in mistakes() {
        mistake_is_found(&seeded);
    }
}
