//! The example of OpenTelemetry: what it prints is what an exporter is given.

use std::net::SocketAddr;

use tollgate_tests::{Process, ports};

use crate::http;

/// Returns the value of the data point with this outcome in the last export.
fn exported(output: &str, outcome: &str) -> u64 {
    let (_, last) = output
        .rsplit_once("tollgate.decisions")
        .expect("the counter is exported");
    let is_of = |point: &&str| {
        point.contains(&format!("outcome: {outcome}")) && point.contains("policy: requests")
    };
    let point = last
        .split("DataPoint #")
        .find(is_of)
        .unwrap_or_else(|| panic!("no point of {outcome} in {output}"));
    let value = point
        .lines()
        .find_map(|line| line.trim().strip_prefix("Value"));
    value
        .and_then(|value| value.trim_matches([' ', ':']).parse().ok())
        .expect("a number")
}

#[test]
fn each_decision_is_exported_with_its_policy_and_outcome() {
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command = Process::example("opentelemetry");
    command.env("LISTEN", address.to_string());
    let mut process = Process::start(command, "Try");
    for customer in ["acme", "other"] {
        (0..7).for_each(|_| _ = http::send(address, "GET", "/", &[("X-Customer", customer)]));
    }
    assert!(process.interrupt().success());
    let output = process.output();
    assert_eq!(
        (exported(&output, "allowed"), exported(&output, "denied")),
        (10, 4),
        "{output}"
    );
    assert!(
        !output
            .rsplit_once("tollgate.decisions")
            .is_some_and(|(_, last)| last.contains("acme")),
        "{output}"
    );
}
