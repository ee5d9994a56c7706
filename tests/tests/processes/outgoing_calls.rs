//! The example of outgoing calls: two instances that share the limit of a third, which is the
//! service.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tollgate_tests::{Process, RedisServer, machine, ports};

use crate::{STANDSTILL, http};

/// The calls of each instance.
const CALLS: u64 = 150;

/// Holds what the service saw, and what each instance says.
struct Outcome {
    report: Value,
    said: Vec<String>,
    took: Duration,
}

impl Outcome {
    fn seen(&self, name: &str) -> u64 {
        self.report[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {}", self.report))
    }
}

fn report(address: SocketAddr) -> Value {
    let (_, answer) = http::send(address, "GET", "/report", &[]);
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).expect("a document")
}

/// Lets two instances call a service that is difficult in some way.
fn run(difficulty: Option<(&str, &str)>) -> Outcome {
    let redis = RedisServer::start();
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let example = || {
        let mut command = Process::example("outgoing_calls");
        command.env("REDIS_URL", redis.url());
        command
    };
    let mut service = example();
    service
        .env("LISTEN", address.to_string())
        .env("CALLS", "0")
        .envs(difficulty);
    let mut service = Process::start(service, "Press Ctrl-C");
    let began = Instant::now();
    let instances: Vec<_> = (0..2)
        .map(|_| {
            let mut command = example();
            command
                .env("API_URL", format!("http://{address}/"))
                .env("CALLS", CALLS.to_string());
            thread::spawn(move || Process::start(command, "calls in").ready_line().to_owned())
        })
        .collect();
    let said = instances
        .into_iter()
        .map(|instance| instance.join().expect("an instance"))
        .collect();
    let outcome = Outcome {
        report: report(address),
        said,
        took: began.elapsed(),
    };
    assert!(service.interrupt().success());
    outcome
}

#[test]
fn two_instances_use_the_limit_of_a_service_and_do_not_exceed_it() {
    machine::undisturbed(STANDSTILL, calls_within_the_limit);
}

fn calls_within_the_limit() {
    let outcome = run(None);
    assert_eq!(outcome.seen("accepted"), 2 * CALLS);
    // A call each 20 ms of both instances together. Without a limit that they share, it would be
    // half of the time.
    let least = Duration::from_millis((2 * CALLS - 1) * 20);
    assert!(
        outcome.took >= least,
        "{:?}, {}",
        outcome.took,
        outcome.report
    );
    // A call that a busy machine delays for more than the margin may be refused, and is repeated.
    assert!(outcome.seen("refused") <= CALLS / 10, "{}", outcome.report);
    assert!(
        outcome
            .said
            .iter()
            .all(|said| said.ends_with("150 answered, 0 refused")),
        "{:?}",
        outcome.said
    );
    // 50 calls a second, less the margin of 3 %. Twice the time is allowed, because the machine may
    // be busy.
    let ideal_ms = (2 * CALLS - 1) * 20 * 103 / 100;
    assert!(
        outcome.seen("took_ms") <= 2 * ideal_ms,
        "{}, ideal {ideal_ms} ms",
        outcome.report
    );
}

#[test]
fn all_instances_obey_the_answer_that_one_of_them_got() {
    machine::undisturbed(STANDSTILL, calls_in_a_pause);
}

fn calls_in_a_pause() {
    let outcome = run(Some(("REFUSE_AT", "50")));
    assert_eq!(
        (outcome.seen("accepted"), outcome.seen("in_pause")),
        (2 * CALLS, 0)
    );
    assert!(
        (1..=CALLS / 10).contains(&outcome.seen("refused")),
        "{}",
        outcome.report
    );
    assert!(
        outcome
            .said
            .iter()
            .all(|said| said.ends_with("150 answered, 0 refused")),
        "{:?}",
        outcome.said
    );
}

#[test]
fn a_service_that_refuses_everything_gets_no_storm_of_retries() {
    let outcome = run(Some(("REFUSE_ALL", "1")));
    assert_eq!(outcome.seen("accepted"), 0);
    // One retry a second from each instance, counted over ten seconds. The budget of tower forgets
    // half of its seconds when they are a little longer. Without a budget there would be two
    // retries of each call.
    let reserve = 2 * 10 * (outcome.took.as_secs() / 5 + 1);
    let seen = outcome.seen("refused");
    assert!(
        (2 * CALLS + 1..=2 * CALLS + reserve).contains(&seen),
        "{seen} calls at the service"
    );
    assert!(
        outcome
            .said
            .iter()
            .all(|said| said.ends_with("0 answered, 150 refused")),
        "{:?}",
        outcome.said
    );
}
