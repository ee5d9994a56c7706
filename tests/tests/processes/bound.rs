//! Law 1 with four processes at one server, on the real clock: never above the bound, and close to
//! it. All algorithms have many keys in a full run alone.

use std::{collections::BTreeMap, time::Duration};

use tollgate::{Algorithm, Policy, Quota, testing::ALGORITHMS};
use tollgate_test_support::{policies::bound, stream};
use tollgate_tests::{Process, RedisServer, machine};

const PROCESSES: usize = 4;

/// The reports of all processes together.
struct Outcome {
    /// From the start of the first process to the end of the last one.
    outer_us: u64,
    /// The time in which all of them ran.
    inner_us: u64,
    admitted: BTreeMap<u64, u64>,
}

fn spend(algorithm: Algorithm, amount: u64, keys: u64, seconds: u64) -> Outcome {
    let server = RedisServer::start();
    let processes: Vec<Process> = (0..PROCESSES)
        .map(|_| {
            let mut command = Process::example("spender");
            command
                .env("URL", server.url())
                .env("ALGORITHM", algorithm.to_string())
                .env("AMOUNT", amount.to_string());
            command
                .env("KEYS", keys.to_string())
                .env("SECONDS", seconds.to_string());
            command
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|command| std::thread::spawn(move || Process::start(command, "done")))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|process| process.join().expect("a process"))
        .collect();
    let (mut starts, mut ends, mut admitted) = (Vec::new(), Vec::new(), BTreeMap::new());
    for process in &processes {
        for line in process.output().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            match words[0] {
                "time" => {
                    starts.push(number(1));
                    ends.push(number(2));
                }
                "key" => *admitted.entry(number(1)).or_default() += number(2),
                _ => {}
            }
        }
    }
    assert_eq!(starts.len(), PROCESSES);
    let first = |times: &[u64]| *times.iter().min().expect("a time");
    let last = |times: &[u64]| *times.iter().max().expect("a time");
    let inner_us = first(&ends).saturating_sub(last(&starts));
    Outcome {
        outer_us: last(&ends) - first(&starts),
        inner_us,
        admitted,
    }
}

/// Returns what is left of a time in which the machine stood still for so long.
fn running(span_us: u64, still: Duration) -> u64 {
    span_us.saturating_sub(still.as_micros() as u64)
}

#[test]
fn law_01_four_processes_never_exceed_the_bound_and_use_the_quota() {
    for algorithm in ALGORITHMS {
        let amount = 200;
        let policy =
            Policy::try_new("shared", algorithm, Quota::per_second(amount)).expect("a policy");
        let (hot, still) = machine::watched(|| spend(algorithm, amount, 1, stream::part_of(4)));
        let passed: u64 = hot.admitted.values().sum();
        let most = bound(&policy, hot.outer_us);
        let least = match algorithm {
            // Locked for longer than the processes run.
            Algorithm::Lockout { .. } => amount,
            // The demand exceeds the quota, so every unit that accrues while the machine runs is
            // spent.
            _ => amount * running(hot.inner_us, still) / 1_000_000 * 99 / 100,
        };
        assert!(
            passed <= most,
            "{algorithm:?}: {passed} in {} µs",
            hot.outer_us
        );
        assert!(
            passed >= least,
            "{algorithm:?}: {passed} in {} µs",
            hot.inner_us
        );

        if !stream::is_full() && algorithm != Algorithm::TokenBucket {
            continue;
        }
        let amount = 3;
        let policy =
            Policy::try_new("shared", algorithm, Quota::per_second(amount)).expect("a policy");
        let (zipf, still) = machine::watched(|| spend(algorithm, amount, 10_000, 3));
        let most = bound(&policy, zipf.outer_us);
        let over: Vec<_> = zipf
            .admitted
            .iter()
            .filter(|&(_, &passed)| passed > most)
            .collect();
        let is_lockout = matches!(algorithm, Algorithm::Lockout { .. });
        let full = if is_lockout {
            amount
        } else {
            bound(&policy, running(zipf.inner_us, still)) / 2 + 1
        };
        let at_limit = zipf
            .admitted
            .values()
            .filter(|&&passed| passed >= full)
            .count();
        assert!(over.is_empty(), "{algorithm:?}: above {most}: {over:?}");
        assert!(
            at_limit > 0,
            "{algorithm:?}: the hottest keys reach their limit"
        );
    }
}
