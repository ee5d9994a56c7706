//! Processes share a quota in PostgreSQL, and some of them are killed.

use std::{net::SocketAddr, path::Path};

use tollgate_test_support::{PATIENCE, POSTGRES, new_table};
use tollgate_tests::{Process, machine, ports, wait};

use crate::{STANDSTILL, http};

const AMOUNT: usize = 1_200;

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
        Process::start(command, "ready")
    };
    let units = |process: &Process| {
        process
            .output()
            .lines()
            .filter(|line| *line == "unit")
            .count()
    };
    let mut spent = 0;
    let other = start();
    for _ in 0..KILLS {
        let mut killed = start();
        wait::until("some units to be spent, or all", PATIENCE, || {
            units(&killed) >= 60 || killed.output().contains("done")
        });
        killed.kill();
        spent += units(&killed);
    }
    // Nothing is locked, so the other process spends what is left.
    wait::until("the rest to be spent", 5 * PATIENCE, || {
        other.output().contains("done")
    });
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

#[test]
fn two_instances_of_the_example_of_rules_share_one_limit_in_postgres() {
    machine::undisturbed(STANDSTILL, two_instances);
}

fn two_instances() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/ranked.yaml");
    let url = format!("{}&create=unlogged&table={}", POSTGRES.url(), new_table());
    let instances: Vec<_> = (0..2)
        .map(|_| {
            let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
            let mut command = Process::example("rules");
            command
                .env("LISTEN", address.to_string())
                .env("RULES", &rules)
                .env("REDIS_URL", &url);
            (Process::start(command, "Try"), address)
        })
        .collect();
    let passed = (0..24)
        .filter(|at| http::send(instances[at % 2].1, "GET", "/", &[("X-Tenant", "acme")]).0 == 200)
        .count();
    // Until the first answer of the database, each instance has a share of its own.
    assert!((10..=20).contains(&passed), "{passed} passed");
    let (first, second) = (instances[0].1, instances[1].1);
    for address in [first, second] {
        wait::until("the limit to be spent", PATIENCE, || {
            http::send(address, "GET", "/", &[("X-Tenant", "acme")]).0 == 429
        });
    }
}
