//! The leaky bucket with four processes on the real clock: turns are one unit apart, and in order.

use std::thread;

use tollgate_tests::{Process, RedisServer};

const PROCESSES: u64 = 4;
const TASKS: u64 = 8;
const TURNS: u64 = 6;

/// One departure each 20 ms.
const AMOUNT: u64 = 50;
const UNIT_US: u64 = 1_000_000 / AMOUNT;

/// Room for all tasks at once.
const BURST: u64 = PROCESSES * TASKS;

/// A turn as the process measured it, in microseconds.
struct Turn {
    asked: u64,
    came: u64,
    /// The delay of the decision.
    delay: u64,
}

impl Turn {
    /// Returns the latest time at which the server can have decided: the process slept for the
    /// delay after it.
    fn decided_by(&self) -> u64 {
        self.came - self.delay
    }

    /// Returns the earliest time at which the turn can come.
    fn due_from(&self) -> u64 {
        self.asked + self.delay
    }
}

/// Runs the processes and returns all turns.
fn turns(server: &RedisServer) -> Vec<Turn> {
    let start = || {
        let mut command = Process::example("waiter");
        command
            .env("URL", server.url())
            .env("AMOUNT", AMOUNT.to_string())
            .env("BURST", BURST.to_string());
        command
            .env("TASKS", TASKS.to_string())
            .env("TURNS", TURNS.to_string());
        command
    };
    let commands: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let started: Vec<_> = commands
        .into_iter()
        .map(|command| thread::spawn(move || Process::start(command, "done")))
        .collect();
    let mut turns = Vec::new();
    for process in started {
        let output = process.join().expect("a process").output();
        turns.extend(output.lines().filter_map(|line| {
            let mut words = line
                .strip_prefix("turn ")?
                .split(' ')
                .map(|word| word.parse::<u64>().expect("a time"));
            Some(Turn {
                asked: words.next()?,
                came: words.next()?,
                delay: words.next()?,
            })
        }));
    }
    turns
}

#[test]
fn departures_of_four_processes_are_spaced_and_in_order() {
    let server = RedisServer::start();
    let turns = turns(&server);
    assert_eq!(
        turns.len() as u64,
        PROCESSES * TASKS * TURNS,
        "every task got every turn"
    );

    let first_asked = turns.iter().map(|turn| turn.asked).min().expect("a turn");
    let mut came: Vec<u64> = turns.iter().map(|turn| turn.came).collect();
    came.sort_unstable();

    // No turn is early: of i + 1 departures the last lies i units after the first one. This bound
    // is exact.
    for (at, &came) in (0..).zip(&came) {
        assert!(
            came >= first_asked + at * UNIT_US,
            "departure {at} after {} µs",
            came - first_asked
        );
    }
    // No turn stays unused: a task asks for the next one only after its last one, so those of the
    // other tasks are ahead at most.
    let longest = turns.iter().map(|turn| turn.delay).max().expect("a turn");
    assert!(
        longest <= BURST * UNIT_US,
        "{longest} µs for the turns of {BURST} tasks"
    );

    // First come, first served: a request after another's decision has a later turn. Both times are
    // bounds that hold however slow a process runs.
    let mut compared = 0;
    for first in &turns {
        for second in turns
            .iter()
            .filter(|second| first.decided_by() < second.asked)
        {
            assert!(
                second.came >= first.due_from(),
                "served {} µs too early",
                first.due_from() - second.came
            );
            compared += 1;
        }
    }
    assert!(compared > 0, "no two turns can be compared");
}
