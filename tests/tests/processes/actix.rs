//! The example of actix-web.

use std::net::SocketAddr;

use tollgate_tests::{Process, RedisServer, machine, ports};

use crate::{STANDSTILL, http};

#[test]
fn workers_and_instances_of_actix_web_share_a_limit() {
    machine::undisturbed(STANDSTILL, requests);
}

fn requests() {
    let redis = RedisServer::start();
    let mut instances: Vec<_> = (0..2)
        .map(|_| {
            let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
            let mut command = Process::program("actix");
            command
                .env("LISTEN", address.to_string())
                .env("REDIS_URL", redis.url());
            (address, Process::start(command, "Try"))
        })
        .collect();
    let answers: Vec<_> = (0..6)
        .map(|number| http::send(instances[number % 2].0, "GET", "/", &[]))
        .collect();
    let statuses: Vec<_> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert!(answers[0].1.ends_with("welcome\n"), "{}", answers[0].1);
    // A unit each twelve seconds.
    let wait = answers[5]
        .1
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "))
        .and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(
        wait.is_some_and(|wait| (1..=12).contains(&wait)),
        "{}",
        answers[5].1
    );
    for (_, process) in &mut instances {
        assert!(process.terminate().success());
    }
}
