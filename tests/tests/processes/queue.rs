//! The leaky bucket over several processes on the real clock: turns are a unit apart, whoever they belong to.

use std::thread;

use tollgate_tests::{Process, RedisServer};

const PROCESSES: u64 = 4;
const TASKS: u64 = 8;
const TURNS: u64 = 6;

/// One leaves each 20 ms.
const AMOUNT: u64 = 50;
const UNIT_US: u64 = 1_000_000 / AMOUNT;

/// Room for all who stand in the queue at once.
const BURST: u64 = PROCESSES * TASKS;

/// A turn as its holder saw it.
struct Turn {
    asked: u64,
    came: u64,
    /// From when the server gave it out.
    delay: u64,
}

impl Turn {
    /// The server gave it out no later: whoever holds it slept for the delay after that.
    fn given_by(&self) -> u64 {
        self.came - self.delay
    }

    /// It lies no earlier.
    fn lies_from(&self) -> u64 {
        self.asked + self.delay
    }
}

/// All turns of all processes.
fn turns(server: &RedisServer) -> Vec<Turn> {
    let start = || {
        let mut command = Process::example("waiter");
        command.env("URL", server.url()).env("AMOUNT", AMOUNT.to_string()).env("BURST", BURST.to_string());
        command.env("TASKS", TASKS.to_string()).env("TURNS", TURNS.to_string());
        command
    };
    let commands: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let started: Vec<_> =
        commands.into_iter().map(|command| thread::spawn(move || Process::start(command, "done"))).collect();
    let mut turns = Vec::new();
    for process in started {
        let output = process.join().expect("a process").output();
        turns.extend(output.lines().filter_map(|line| {
            let mut words = line.strip_prefix("turn ")?.split(' ').map(|word| word.parse::<u64>().expect("a time"));
            Some(Turn { asked: words.next()?, came: words.next()?, delay: words.next()? })
        }));
    }
    turns
}

#[test]
fn departures_of_four_processes_are_spaced_and_in_order() {
    let server = RedisServer::start();
    let turns = turns(&server);
    assert_eq!(turns.len() as u64, PROCESSES * TASKS * TURNS, "everybody got every turn");

    let first_asked = turns.iter().map(|turn| turn.asked).min().expect("a turn");
    let mut came: Vec<u64> = turns.iter().map(|turn| turn.came).collect();
    came.sort_unstable();

    // Nobody is early: of i + 1 departures one had a turn that lies i units behind the first one. This is exact.
    for (at, &came) in (0..).zip(&came) {
        assert!(came >= first_asked + at * UNIT_US, "departure {at} after {} µs", came - first_asked);
    }
    // No turn is left unused either: who had one comes back at once, so from when all are there the queue is never empty.
    // (Twice the time, because the machine may be busy with something else.)
    let took = came[came.len() - 1] - came[0];
    let most = 2 * came.len() as u64 * UNIT_US;
    assert!(took <= most + start_in(&turns), "{took} µs for {} departures", came.len());

    // First come, first served: who asked after another's turn was given out has a later one. Both are known by bounds
    // that hold however late a process runs.
    let mut compared = 0;
    for first in &turns {
        for second in turns.iter().filter(|second| first.given_by() < second.asked) {
            assert!(second.came >= first.lies_from(), "served {} µs too early", first.lies_from() - second.came);
            compared += 1;
        }
    }
    assert!(compared > 0, "no two turns can be compared");
    println!("{} departures in {} ms, {UNIT_US} µs apart; {compared} pairs in order", came.len(), took / 1_000);
}

/// By how much the processes began apart: the queue of those that are there already may run dry meanwhile.
fn start_in(turns: &[Turn]) -> u64 {
    let mut asked: Vec<u64> = turns.iter().map(|turn| turn.asked).collect();
    asked.sort_unstable();
    asked[(PROCESSES * TASKS) as usize - 1] - asked[0]
}
