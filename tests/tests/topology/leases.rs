//! The bound of a leased key over four processes that hold units while Sentinels replace the
//! server.

use std::time::Duration;

use tollgate_test_support::{LEASED_PER_SECOND, LeaseReplicas, MOST_LEASED, most_above};
use tollgate_tests::{Process, RedisSentinels};

/// Units outlast the fail-over.
const GENERATION: Duration = Duration::from_secs(30);

/// Returns the units above the bound of one state.
fn above_after_a_fail_over(before: impl FnOnce(&RedisSentinels)) -> i64 {
    let sentinels = RedisSentinels::start(false);
    let program = || {
        let mut command = Process::example("lessee");
        command.env("URL", sentinels.url() + "?connect_timeout=1m");
        command
    };
    let replicas = LeaseReplicas::start(program, GENERATION);
    replicas.wait_until_drained();
    replicas.fail_over(&sentinels, before);
    let admissions = replicas.end();
    most_above(&admissions, LEASED_PER_SECOND, LEASED_PER_SECOND)
}

#[test]
fn a_fail_over_that_keeps_the_state_adds_nothing_while_units_are_leased() {
    let above = above_after_a_fail_over(|_| {});
    assert!(above <= 0, "{above} units above the bound");
}

#[test]
fn a_fail_over_that_loses_the_state_adds_one_burst_and_what_was_leased() {
    let above = above_after_a_fail_over(RedisSentinels::empty_replicas);
    let most = (LEASED_PER_SECOND + MOST_LEASED) as i64;
    assert!(above <= most, "{above} units above the bound, of {most}");
}
