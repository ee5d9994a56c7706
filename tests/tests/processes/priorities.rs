//! The example of priorities: two instances that share one limit.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use tollgate_tests::{Process, RedisServer, ports};

fn status(address: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("the example listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn reports_of_two_instances_leave_the_last_units_to_orders() {
    let redis = RedisServer::start();
    let instances: Vec<(Process, SocketAddr)> = (0..2)
        .map(|_| {
            let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
            let mut command = Process::example("priorities");
            command.env("LISTEN", address.to_string()).env("REDIS_URL", redis.url());
            (Process::start(command, "Try"), address)
        })
        .collect();
    let began = Instant::now();
    let passed =
        |path: &str, requests: usize| (0..requests).filter(|at| status(instances[at % 2].1, path) == 200).count();
    let reports = passed("/reports", 20);
    let orders = passed("/orders", 10);
    // One unit accrues in 6 s.
    let accrued = began.elapsed().as_secs() as usize / 6 + 1;
    assert!((6..=6 + accrued).contains(&reports), "{reports} reports");
    assert!((4..=4 + accrued).contains(&orders), "{orders} orders");
    assert!(reports + orders <= 10 + accrued, "{reports} reports and {orders} orders");
    for (mut process, _) in instances {
        assert!(process.interrupt().success());
    }
}
