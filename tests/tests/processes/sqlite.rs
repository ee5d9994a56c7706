//! The example of a store in a file: it is killed under load, and counts on where it stopped.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use tollgate_test_support::PATIENCE;
use tollgate_tests::{Process, ports, wait};

use crate::http;

/// The requests of a day. None of them comes back within a minute.
const AMOUNT: u64 = 800;

/// The callers that ask at the same time.
const CALLERS: u64 = 8;

/// The requests that pass before the program is killed, each time.
const BEFORE_KILL: u64 = 100;

const KILLS: u64 = 4;

/// Asks once. Returns the status, and `None` when the program ended meanwhile.
fn status(address: SocketAddr) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .write_all(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Customer: acme\r\n\r\n",
        )
        .ok()?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head)
        .ok()?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()
}

/// Ends the callers, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn counts_in_a_file_survive_a_kill_and_no_unit_is_given_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |address: SocketAddr| {
        let mut command = Process::example("sqlite_store");
        command
            .env("LISTEN", address.to_string())
            .env("AMOUNT", AMOUNT.to_string());
        command.env("FILE", folder.path().join("counts.sqlite"));
        Process::start(command, "Try")
    };
    let (passed, denied) = (AtomicU64::new(0), AtomicU64::new(0));
    let load = |address: SocketAddr, until: &(dyn Fn() -> bool + Sync)| {
        while !until() {
            match status(address) {
                Some(200) => passed.fetch_add(1, Ordering::SeqCst),
                Some(429) => denied.fetch_add(1, Ordering::SeqCst),
                Some(other) => panic!("status {other}"),
                // It was killed with this request in flight.
                None => 0,
            };
        }
    };
    for _ in 0..KILLS {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut process = start(address);
        let (before, is_dead) = (passed.load(Ordering::SeqCst), AtomicBool::new(false));
        let until = || is_dead.load(Ordering::SeqCst);
        thread::scope(|scope| {
            (0..CALLERS).for_each(|_| drop(scope.spawn(|| load(address, &until))));
            let _end = End(&is_dead);
            wait::until("enough requests to pass", PATIENCE, || {
                passed.load(Ordering::SeqCst) >= before + BEFORE_KILL
            });
            process.kill();
        });
    }
    // What is left is spent, by callers at once.
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let _process = start(address);
    let until = || denied.load(Ordering::SeqCst) > 0;
    thread::scope(|scope| {
        (0..CALLERS).for_each(|_| drop(scope.spawn(|| load(address, &until))));
    });
    let (passed, lost) = (passed.into_inner(), KILLS * CALLERS);
    println!(
        "{passed} of {AMOUNT} passed, of which {lost} were in flight at most when the program was killed"
    );
    assert!(passed <= AMOUNT, "{passed} passed: a unit was given twice");
    assert!(
        passed + lost >= AMOUNT,
        "{passed} passed: units are lost that were not in flight"
    );
    let (_, answer) = http::send(address, "GET", "/", &[("X-Customer", "other")]);
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "another customer has a count of its own: {answer}"
    );
}
