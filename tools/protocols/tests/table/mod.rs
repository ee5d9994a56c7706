//! The two claims about a table: a row holds, and a mistake is found. Both protocols make them.

use tollgate_protocols::{
    explorer::{Limits, Protocol, explore},
    table::{Row, Seeded},
};

/// Explores a short row, and compares the number of its states.
pub(crate) fn row_holds<P: Protocol>(row: &Row<P>) {
    let explored = row.explore();
    if let Some(violation) = explored.violation {
        panic!("{violation}");
    }
    assert!(explored.is_complete);
    let name = row.name;
    assert_eq!(Some(explored.states), row.states, "states of {name}");
}

/// Finds a mistake by its invariant, and nothing in the setting without it.
pub(crate) fn mistake_is_found<P: Protocol>(seeded: &Seeded<P>) {
    let found = seeded
        .find()
        .map(|found| (found.invariant, found.path.len()));
    assert_eq!(
        found,
        Some((seeded.invariant, seeded.steps)),
        "{}",
        seeded.says
    );
    let sound = explore(&seeded.sound, Limits::default());
    assert!(sound.violation.is_none(), "without: {}", seeded.says);
    assert!(sound.is_complete);
    assert_eq!(sound.states, seeded.states, "without: {}", seeded.says);
}
