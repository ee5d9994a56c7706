//! Four processes at one server are linearisable: their decisions, in the order of the server's
//! time, are those of the Rust functions for one caller who makes the same checks in that order.

use std::{cmp::Reverse, ffi::OsString, process::Command, sync::LazyLock, thread};

use tollgate::{
    Algorithm, Cost, Key, MemoryStore, PolicySet, Store,
    store::{Check, Clock},
};
use tollgate_test_support::{described, recorded_policies as policies};
use tollgate_tests::{Process, RedisServer};

const PROCESSES: usize = 4;

/// A decision that a process received.
#[derive(Debug)]
struct Record {
    at_us: u64,
    key: u64,
    cost: u64,
    decision: String,
    process: usize,
}

impl Record {
    /// Returns the place in the order in which the server decided. The checks of one call have the
    /// same microsecond. Each check that passes leaves fewer units than there were before it, and
    /// the other checks of these units come before it.
    fn order(&self) -> (u64, u64, Reverse<u64>, bool) {
        let mut words = self.decision.split(' ');
        let is_allowed = words.next() == Some("1");
        let remaining: u64 = words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a number");
        let spent = if is_allowed { self.cost } else { 0 };
        (self.at_us, self.key, Reverse(remaining + spent), spent > 0)
    }
}

/// Starts the processes at once and collects their decisions.
fn record(name: &str) -> Vec<Record> {
    /// Built once.
    static RECORDER: LazyLock<OsString> =
        LazyLock::new(|| Process::example("recorder").get_program().to_owned());
    let server = RedisServer::start();
    let start = || {
        let mut command = Command::new(&*RECORDER);
        command.env("URL", server.url()).env("POLICIES", name);
        Process::start(command, "ready")
    };
    let mut processes: Vec<Process> = thread::scope(|scope| {
        let starting: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(start)).collect();
        starting
            .into_iter()
            .map(|process| process.join().expect("a process"))
            .collect()
    });
    assert!(
        !server
            .command(&["SET", "go", "1", "PX", "600000"])
            .is_error()
    );
    let mut records = Vec::new();
    for (at, process) in processes.iter_mut().enumerate() {
        process.wait_for_line("done");
        let output = process.output();
        records.extend(
            output
                .lines()
                .filter_map(|line| line.strip_prefix("decided "))
                .map(|line| {
                    let mut words = line.splitn(4, ' ');
                    let mut next = || words.next().expect("four words");
                    let [at_us, key, cost] =
                        [next(), next(), next()].map(|word| word.parse::<u64>().expect("a number"));
                    Record {
                        at_us,
                        key,
                        cost,
                        decision: next().to_owned(),
                        process: at,
                    }
                }),
        );
    }
    records.sort_by_key(Record::order);
    records
}

/// Makes the same checks with the Rust functions in this order, and compares every decision.
fn replay(policies: &PolicySet, records: &[Record]) {
    let clock = Clock::manual(0);
    let oracle = MemoryStore::builder().clock(clock.clone()).build();
    for (at, record) in records.iter().enumerate() {
        clock.set(record.at_us);
        let key = Key::from(record.key);
        let check = Check::new(policies, &key, Cost::new(record.cost));
        let decision = oracle
            .check(check)
            .into_ready()
            .expect("in process")
            .expect("a decision");
        let before: Vec<_> = records[..at]
            .iter()
            .rev()
            .filter(|it| it.key == record.key)
            .take(3)
            .collect();
        assert_eq!(
            described(&decision),
            record.decision,
            "{record:?} after {before:#?}"
        );
    }
}

fn is_linear(name: &str) {
    let policies = policies::named(name);
    let records = record(name);
    replay(&policies, &records);
    // The test is meaningful only if the processes competed, and some checks passed and some were
    // denied.
    let passed = records
        .iter()
        .filter(|it| it.cost > 0 && it.decision.starts_with('1'))
        .count();
    let denied = records
        .iter()
        .filter(|it| it.decision.starts_with('0'))
        .count();
    let met = records
        .windows(2)
        .filter(|pair| pair[0].process != pair[1].process)
        .count();
    assert_eq!(records.len(), PROCESSES * policies::checks() as usize);
    assert!(
        records.iter().all(|it| it.at_us > 0),
        "every reply carries the server's time"
    );
    assert!(
        passed > 100 && denied > 100 && met > 100,
        "{passed} passed, {denied} denied, {met} met"
    );
}

#[test]
fn decisions_of_four_processes_are_those_of_one_caller_in_the_order_of_the_servers_time() {
    for name in policies::NAMES {
        is_linear(name);
    }
}

#[test]
fn all_algorithms_are_among_the_policies() {
    let mut algorithms: Vec<Algorithm> = Vec::new();
    for name in policies::NAMES {
        algorithms.extend(
            policies::named(name)
                .iter()
                .map(|policy| policy.algorithm()),
        );
    }
    algorithms.sort_by_key(|it| format!("{it:?}"));
    algorithms.dedup();
    assert_eq!(algorithms.len(), 8, "{algorithms:?}");
}
