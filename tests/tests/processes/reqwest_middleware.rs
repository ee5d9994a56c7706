//! The example of outgoing calls with `reqwest-middleware`.

use std::time::Duration;

use tollgate_tests::{Process, machine};

use crate::STANDSTILL;

/// Returns what the example says, and how long its calls took.
fn run(variables: &[(&str, &str)]) -> (String, Duration) {
    let mut command = Process::example("reqwest_middleware");
    command
        .env("LISTEN", "127.0.0.1:0")
        .envs(variables.iter().copied());
    let said = Process::start(command, "calls answered")
        .ready_line()
        .to_owned();
    let (said, took) = said.split_once(" in ").expect("a time");
    let took = took.split(' ').next().and_then(|ms| ms.parse().ok());
    (
        said.to_owned(),
        Duration::from_millis(took.expect("a number")),
    )
}

#[test]
fn calls_through_a_chain_of_middleware_wait_for_their_turn() {
    machine::undisturbed(STANDSTILL, || {
        let (said, took) = run(&[]);
        assert_eq!(said, "20 of 20 calls answered");
        // The first one leaves at once.
        assert!(took >= Duration::from_millis(19 * 200), "{took:?}");
    });
}

#[test]
fn a_pause_that_the_service_asks_for_is_obeyed_by_all_calls_and_the_call_is_repeated() {
    machine::undisturbed(STANDSTILL, || {
        let (said, took) = run(&[("PAUSE", "1")]);
        assert_eq!(said, "20 of 20 calls answered");
        // The third call leaves after 400 ms. Eighteen calls follow the pause of two seconds.
        assert!(took >= Duration::from_millis(400 + 2_000), "{took:?}");
    });
}
