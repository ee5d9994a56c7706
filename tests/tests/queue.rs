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

/// How much later than its turn a waiting task may run: the timer's millisecond, the way of the reply, and a scheduler
/// with two processors for all of it. It is never early, so this is the only way in which two departures come closer
/// to each other than their turns.
const LATE_US: u64 = 100_000;

/// When each turn was asked for, and when it came.
fn turns(server: &RedisServer) -> Vec<(u64, u64)> {
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
            Some((words.next()?, words.next()?))
        }));
    }
    turns
}

#[test]
fn departures_of_four_processes_are_spaced_and_in_order() {
    let server = RedisServer::start();
    let turns = turns(&server);
    assert_eq!(turns.len() as u64, PROCESSES * TASKS * TURNS, "everybody got every turn");

    let first_asked = turns.iter().map(|&(asked, _)| asked).min().expect("a turn");
    let mut came: Vec<u64> = turns.iter().map(|&(_, came)| came).collect();
    came.sort_unstable();

    // Nobody is early: of i + 1 departures one had a turn that lies i units behind the first one. This is exact.
    for (at, &came) in (0..).zip(&came) {
        assert!(came >= first_asked + at * UNIT_US, "departure {at} after {} µs", came - first_asked);
    }
    // So no k units hold more than k + 1, and those that came late into them.
    let mut closest = i64::MAX;
    for from in 0..came.len() {
        for to in from + 1..came.len() {
            let apart = (came[to] - came[from]) as i64 - (to - from) as i64 * UNIT_US as i64;
            closest = closest.min(apart);
        }
    }
    assert!(-closest <= LATE_US as i64, "departures closer than their turns by {} µs", -closest);
    // No turn is left unused either: who had one comes back at once, so from when all are there the queue is never empty.
    let took = came[came.len() - 1] - came[0];
    let most = (came.len() as u64 - 1) * UNIT_US + LATE_US;
    assert!(took <= most + start_apart(&turns), "{took} µs for {} departures", came.len());

    // First come, first served. What is known is when each began to ask; the server was reached a little later.
    let mut unfair = 0;
    for &(asked, came) in &turns {
        for &(other_asked, other_came) in &turns {
            if asked + LATE_US < other_asked && came > other_came + LATE_US {
                unfair += 1;
            }
        }
    }
    assert_eq!(unfair, 0, "pairs that were served in the wrong order");
    println!(
        "{} departures in {} ms, {UNIT_US} µs apart; at worst {} µs closer than their turns",
        came.len(),
        took / 1_000,
        -closest
    );
}

/// By how much the processes began apart: the queue of those that are there already may run dry meanwhile.
fn start_apart(turns: &[(u64, u64)]) -> u64 {
    let mut asked: Vec<u64> = turns.iter().map(|&(asked, _)| asked).collect();
    asked.sort_unstable();
    asked[(PROCESSES * TASKS) as usize - 1] - asked[0]
}
