//! Three processes share four permits. One of them holds half, and is killed or stopped. Four
//! processes share twenty, and learn that there are eight.

use std::{env, process::Command, time::Duration};

use tollgate_test_support::{
    PATIENCE,
    permits::{
        AT_ONCE, SharedPermits, begun_above_a_lowered_limit, most_at_once, most_held_while,
        run_permit_worker,
    },
};
use tollgate_tests::{RedisServer, WallClock, machine, wait};

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
/// `clocks` are the wall clocks of the server and of the processes, if they are not the machine's.
fn others_get_the_permits(
    clocks: [Option<&WallClock>; 2],
    disturb: impl Fn(&mut SharedPermits),
    after: impl Fn(&SharedPermits),
) {
    let [of_server, of_processes] = clocks;
    for is_exact in [true, false] {
        let server = RedisServer::builder();
        let server = match of_server {
            Some(clock) => server.clock(clock),
            None => server,
        };
        let server = server.start();
        let at_clock = || {
            let mut command = program(&server);
            command.envs(of_processes.into_iter().flat_map(WallClock::variables));
            command
        };
        let mut shared = SharedPermits::start(at_clock, LIFE, is_exact);
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
    others_get_the_permits([None; 2], SharedPermits::kill_first, |_| {});
}

#[test]
fn a_process_that_was_stopped_for_a_life_cancels_its_work_when_it_goes_on() {
    others_get_the_permits(
        [None; 2],
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
fn wall_clocks_that_jump_by_an_hour_cancel_no_work_and_keep_no_permit() {
    // Work is cancelled where the machine stands still for the life of its permit.
    machine::undisturbed(LIFE / 8, || {
        wall_clocks_jump(WallClock::back, |clock| [Some(clock), None]);
        wall_clocks_jump(WallClock::forward, |clock| [None, Some(clock)]);
    });
}

/// Moves the wall clock of the server or of the processes, as `clocks` says, by an hour.
fn wall_clocks_jump(
    jump: fn(&WallClock, Duration),
    clocks: for<'a> fn(&'a WallClock) -> [Option<&'a WallClock>; 2],
) {
    let clock = WallClock::new();
    let disturb = |shared: &mut SharedPermits| {
        jump(&clock, Duration::from_secs(3_600));
        shared.kill_first();
    };
    let cancelled_none = |shared: &SharedPermits| assert_eq!(shared.cancelled()[1..], [0, 0]);
    others_get_the_permits(clocks(&clock), disturb, cancelled_none);
}

#[test]
fn law_p2_four_busy_processes_keep_to_a_lowered_limit() {
    for is_exact in [true, false] {
        let server = RedisServer::start();
        let above = begun_above_a_lowered_limit(&server, || program(&server), LIFE, is_exact);
        assert_eq!(above, 0, "exact: {is_exact}");
    }
}
