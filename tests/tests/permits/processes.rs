//! Three processes share four permits. One of them holds half, and is killed or stopped. Four
//! processes share twenty, and learn that there are eight.

use std::{env, process::Command, time::Duration};

use tollgate_test_support::{
    PATIENCE,
    permits::{
        AT_ONCE, LoweredLimit, SharedPermits, most_at_once, most_held_while, run_permit_worker,
    },
};
use tollgate_tests::{RedisServer, wait};

/// A life in which a slow machine renews.
const LIFE: Duration = Duration::from_secs(2);

const URL: &str = "PERMITS_URL";

/// Runs as one of the processes, which the tests below start. Does nothing in a usual run of the
/// tests.
#[test]
fn worker() {
    if let Ok(url) = env::var(URL) {
        run_permit_worker(&url);
    }
}

/// Returns a command that runs [`worker`].
fn program(server: &RedisServer) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command
        .args(["--exact", "processes::worker", "--nocapture"])
        .env(URL, server.url());
    command
}

/// Disturbs the first process, so that the others get its permits. At no time are more than four
/// pieces of work in progress, or more than four permits held at the server.
fn others_get_the_permits(disturb: impl Fn(&mut SharedPermits), after: impl Fn(&SharedPermits)) {
    for is_exact in [true, false] {
        let server = RedisServer::start();
        let mut shared = SharedPermits::start(|| program(&server), LIFE, is_exact);
        let held = most_held_while(&server, || {
            disturb(&mut shared);
            wait::until("the others to work with all permits", PATIENCE, || {
                shared.others_at_work() >= AT_ONCE
            });
            after(&shared);
            let spans = shared.end();
            assert!(
                most_at_once(&spans) <= AT_ONCE,
                "more than four at once: {spans:?}"
            );
        });
        assert!(held as usize <= AT_ONCE, "{held} permits are held");
    }
}

#[test]
fn the_permits_of_a_killed_process_are_free_again_after_their_life() {
    others_get_the_permits(SharedPermits::kill_first, |_| {});
}

#[test]
fn a_process_that_was_stopped_for_a_life_cancels_its_work_when_it_goes_on() {
    others_get_the_permits(
        |shared| shared.stop_first(),
        |shared| {
            shared.resume_first();
            wait::until("the work to be cancelled", PATIENCE, || {
                shared.cancelled()[0] >= AT_ONCE / 2
            });
        },
    );
}

#[test]
fn law_p2_four_busy_processes_keep_to_a_lowered_limit() {
    for is_exact in [true, false] {
        let server = RedisServer::start();
        let lowered = LoweredLimit::run(&server, || program(&server), LIFE, is_exact);
        assert_eq!(lowered.begun_above, 0, "exact: {is_exact}: {lowered:?}");
    }
}
