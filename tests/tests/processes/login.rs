//! The log-in example under many log-ins at once.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Barrier},
    thread,
};

use tollgate_tests::{Process, RedisServer, ports};

/// Logs in. Returns the status.
fn log_in(address: SocketAddr, user: &str, password: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("the example listens");
    let target = format!("/login?user={user}&password={password}");
    write!(stream, "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn thirty_right_log_ins_at_once_all_pass_and_the_fourth_wrong_one_does_not() {
    let redis = RedisServer::start();
    for url in [None, Some(redis.url())] {
        let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
        let mut command = Process::example("login_protection");
        command.env("LISTEN", address.to_string());
        if let Some(url) = &url {
            command.env("REDIS_URL", url);
        }
        let mut process = Process::start(command, "Try");

        let barrier = Arc::new(Barrier::new(30));
        let clients: Vec<_> = (0..30)
            .map(|_| {
                let barrier = barrier.clone();
                thread::spawn(move || {
                    barrier.wait();
                    log_in(address, "berta", "secret")
                })
            })
            .collect();
        let statuses: Vec<_> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
        assert_eq!(statuses, [200; 30], "{url:?}");

        let guesses: Vec<_> = (0..5).map(|_| log_in(address, "anna", "guess")).collect();
        assert_eq!(guesses, [401, 401, 401, 429, 429], "{url:?}");
        assert_eq!(log_in(address, "anna", "secret"), 429);
        assert_eq!(log_in(address, "berta", "secret"), 200);
        assert!(process.terminate().success());
    }
}
