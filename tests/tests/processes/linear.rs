//! Four processes at one server: what all of them were told, put in the order of the server's stamps, is what one caller
//! would be told who asks the functions in that order, alone.

mod told;

use std::{cmp::Reverse, ffi::OsString, process::Command, sync::LazyLock, thread};

use told::told;
use tollgate::{Algorithm, Check, Clock, Cost, Key, MemoryStore, PolicySet, Store};
use tollgate_tests::{Process, RedisServer};

#[path = "../../examples/recorder/policies.rs"]
mod policies;

const PROCESSES: usize = 4;

/// What one caller was told.
#[derive(Debug)]
struct Record {
    at_us: u64,
    key: u64,
    cost: u32,
    told: String,
    process: usize,
}

impl Record {
    /// In the order in which the server decided. Of one instant are only requests of one call, which are decided as they
    /// came: first those that pass, each with less left than the one before.
    fn order(&self) -> (u64, u64, Reverse<bool>, Reverse<u64>) {
        let mut words = self.told.split(' ');
        let is_allowed = words.next() == Some("1");
        let remaining = words.next().and_then(|word| word.parse().ok()).expect("a number");
        (self.at_us, self.key, Reverse(is_allowed), Reverse(remaining))
    }
}

/// Lets the processes loose at once and collects what they were told.
fn record(name: &str) -> Vec<Record> {
    /// Built once.
    static RECORDER: LazyLock<OsString> = LazyLock::new(|| Process::example("recorder").get_program().to_owned());
    let server = RedisServer::start();
    let start = || {
        let mut command = Command::new(&*RECORDER);
        command.env("URL", server.url()).env("POLICIES", name);
        Process::start(command, "ready")
    };
    let mut processes: Vec<Process> = thread::scope(|scope| {
        let starting: Vec<_> = (0..PROCESSES).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|process| process.join().expect("a process")).collect()
    });
    assert!(!server.command(&["SET", "go", "1", "PX", "600000"]).is_error());
    let mut records = Vec::new();
    for (at, process) in processes.iter_mut().enumerate() {
        process.wait_for_line("done");
        let output = process.output();
        records.extend(output.lines().filter_map(|line| line.strip_prefix("told ")).map(|line| {
            let mut words = line.splitn(4, ' ');
            let mut next = || words.next().expect("four words");
            let [at_us, key, cost] = [next(), next(), next()].map(|word| word.parse::<u64>().expect("a number"));
            let cost = u32::try_from(cost).expect("small");
            Record { at_us, key, cost, told: next().to_owned(), process: at }
        }));
    }
    records.sort_by_key(Record::order);
    records
}

/// Asks the functions the same in this order, and compares every answer.
fn replay(policies: &PolicySet, records: &[Record]) {
    let clock = Clock::manual(0);
    let oracle = MemoryStore::builder().clock(clock.clone()).build();
    for (at, record) in records.iter().enumerate() {
        clock.set(record.at_us);
        let key = Key::from(record.key);
        let check = Check::new(policies, &key, Cost::new(record.cost));
        let decision = oracle.check(check).into_ready().expect("in process").expect("a decision");
        let before: Vec<_> = records[..at].iter().rev().filter(|it| it.key == record.key).take(3).collect();
        assert_eq!(told(&decision), record.told, "{record:?} after {before:#?}");
    }
}

fn is_linear(name: &str) {
    let policies = policies::named(name);
    let records = record(name);
    replay(&policies, &records);
    // It shows something only if they met, passed, and were refused.
    let passed = records.iter().filter(|it| it.cost > 0 && it.told.starts_with('1')).count();
    let refused = records.iter().filter(|it| it.told.starts_with('0')).count();
    let met = records.windows(2).filter(|pair| pair[0].process != pair[1].process).count();
    println!("{name}: {} decisions, {passed} passed, {refused} refused, {met} after another process's", records.len());
    assert_eq!(records.len(), PROCESSES * policies::CHECKS as usize);
    assert!(records.iter().all(|it| it.at_us > 0), "every reply carries the server's time");
    assert!(passed > 100 && refused > 100 && met > 100, "{passed} passed, {refused} refused, {met} met");
}

#[test]
fn every_decision_of_every_process_is_the_oracles_in_the_order_of_the_servers_time() {
    for name in policies::NAMES {
        is_linear(name);
    }
}

#[test]
fn all_algorithms_are_among_the_policies() {
    let mut algorithms: Vec<Algorithm> = Vec::new();
    for name in policies::NAMES {
        algorithms.extend(policies::named(name).iter().map(|policy| policy.algorithm()));
    }
    algorithms.sort_by_key(|it| format!("{it:?}"));
    algorithms.dedup();
    assert_eq!(algorithms.len(), 8, "{algorithms:?}");
}
