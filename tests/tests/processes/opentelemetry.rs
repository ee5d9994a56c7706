//! The example of OpenTelemetry: what it prints is what an exporter is given.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use tollgate_tests::{Process, ports};

fn ask(address: SocketAddr, customer: &str) {
    let mut stream = TcpStream::connect(address).expect("the example listens");
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Customer: {customer}\r\n");
    write!(stream, "{head}Connection: close\r\n\r\n").expect("a request");
    stream.read_to_string(&mut String::new()).expect("an answer");
}

/// Returns the value of the data point with this outcome in the last export.
fn exported(output: &str, outcome: &str) -> u64 {
    let (_, last) = output.rsplit_once("tollgate.decisions").expect("the counter is exported");
    let is_of = |point: &&str| point.contains(&format!("outcome: {outcome}")) && point.contains("policy: requests");
    let point = last.split("DataPoint #").find(is_of).unwrap_or_else(|| panic!("no point of {outcome} in {output}"));
    let value = point.lines().find_map(|line| line.trim().strip_prefix("Value"));
    value.and_then(|value| value.trim_matches([' ', ':']).parse().ok()).expect("a number")
}

#[test]
fn each_decision_is_exported_with_its_policy_and_outcome() {
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command = Process::example("opentelemetry");
    command.env("LISTEN", address.to_string());
    let mut process = Process::start(command, "Try");
    for customer in ["acme", "other"] {
        (0..7).for_each(|_| ask(address, customer));
    }
    assert!(process.interrupt().success());
    let output = process.output();
    assert_eq!((exported(&output, "allowed"), exported(&output, "denied")), (10, 4), "{output}");
    assert!(!output.rsplit_once("tollgate.decisions").is_some_and(|(_, last)| last.contains("acme")), "{output}");
}
