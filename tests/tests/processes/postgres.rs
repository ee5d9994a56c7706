//! Two processes spend one quota in PostgreSQL, and one of them is killed.

use tollgate_test_support::{PATIENCE, POSTGRES, new_table};
use tollgate_tests::{Process, wait};

const AMOUNT: usize = 3_000;

/// The checks of a process that are under way at most.
const IN_FLIGHT: usize = 8;

const KILLS: usize = 3;

#[test]
fn processes_that_are_killed_give_no_unit_twice_and_leave_nothing_locked() {
    let table = new_table();
    let start = || {
        let mut command = Process::example("pg_spender");
        command
            .env(
                "URL",
                format!("{}&table={table}&create=logged", POSTGRES.url()),
            )
            .env("AMOUNT", AMOUNT.to_string());
        Process::start(command, "unit")
    };
    let units = |process: &Process| {
        process
            .output()
            .lines()
            .filter(|line| *line == "unit")
            .count()
    };
    let mut spent = 0;
    let mut other = start();
    for _ in 0..KILLS {
        let mut killed = start();
        let before = units(&killed);
        wait::until("some units to be spent", PATIENCE, || {
            units(&killed) >= before + 100 || units(&other) > AMOUNT / 2
        });
        killed.kill();
        spent += units(&killed);
    }
    // Nothing is locked, so the other process spends what is left.
    let _ = other.wait_for_line("done");
    spent += units(&other);
    let lost = KILLS * IN_FLIGHT;
    assert!(
        spent <= AMOUNT,
        "{spent} were given: a unit was given twice"
    );
    assert!(
        spent + lost >= AMOUNT,
        "{spent} were given: units are lost that were not in flight"
    );
}
