//! Law 17 over a server: callers ask for more turns than there are, in one process and in four.

use std::time::Duration;

use tollgate_test_support::Crowd;
use tollgate_tests::{Process, RedisServer};

/// The callers of all processes, the longest wait of each in milliseconds, and how many times the
/// turns they ask for.
const CROWDS: [(usize, u64, f64); 5] = [
    (8, 40, 1.2),
    (16, 40, 20.0),
    (16, 100, 3.0),
    (64, 1_000, 20.0),
    (400, 100, 20.0),
];

#[test]
fn law_17_callers_of_one_process_and_of_four_use_the_places_of_a_queue() {
    for (callers, max_wait, demand) in CROWDS {
        for processes in [1, 4] {
            let server = RedisServer::start();
            let max_wait = Duration::from_millis(max_wait);
            let span = max_wait + Duration::from_secs(1);
            let turns = Crowd {
                processes,
                callers,
                max_wait,
                pause: Crowd::pause_of(callers, demand),
                span,
            }
            .run(|| {
                let mut command = Process::example("crowd");
                command.env("URL", server.url());
                command
            });
            let place = format!("{callers} callers of {processes} processes, {max_wait:?}");
            let share = turns.share_of_places();
            assert!(turns.refused() > 0, "{place}: there were turns for all");
            assert!(share >= 95.0, "{place}: {share} %");
        }
    }
}
