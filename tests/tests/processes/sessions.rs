//! The example whose key is the account of a session.

use std::net::SocketAddr;

use tollgate_tests::{Process, RedisServer, machine, ports};

use crate::{STANDSTILL, http};

/// Begins a session, and returns its cookie.
fn login(address: SocketAddr, account: &str) -> String {
    let path = format!("/login?account={account}");
    let answer = http::open(address, "POST", &path, &[], "");
    assert_eq!(answer.status, 200, "{}", answer.head);
    let cookie = answer
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .and_then(|cookie| cookie.split(';').next());
    cookie.expect("a cookie").to_owned()
}

#[test]
fn accounts_are_limited_whatever_their_sessions_are() {
    machine::undisturbed(STANDSTILL, accounts);
}

fn accounts() {
    let redis = RedisServer::start();
    let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let mut command = Process::example("sessions");
    command
        .env("LISTEN", address.to_string())
        .env("REDIS_URL", redis.url());
    let mut process = Process::start(command, "Try");
    let get = |cookie: &str| http::send(address, "GET", "/", &[("Cookie", cookie)]).0;
    let (ann, again, bob) = (
        login(address, "ann"),
        login(address, "ann"),
        login(address, "bob"),
    );
    assert_ne!(ann, again);
    let statuses = [&ann, &again, &ann, &again, &ann, &again].map(|cookie| get(cookie));
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert_eq!(get(&bob), 200, "another account");
    // A cookie that a client invents names nobody. Such requests share the limit of their address.
    let invented = (0..6).map(|number| get(&format!("id=invented{number}")));
    let invented: Vec<_> = invented.collect();
    assert_eq!(invented, [200, 200, 200, 200, 200, 429]);
    assert!(process.terminate().success());
}
