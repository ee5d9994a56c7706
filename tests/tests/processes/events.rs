//! The example of events: two instances that write audit logs, and one mail per customer.

use std::net::SocketAddr;

use tollgate_tests::{Process, RedisServer, machine, ports};

use crate::{STANDSTILL, http};

fn status(address: SocketAddr, customer: &str) -> u16 {
    http::send(address, "GET", "/", &[("X-Customer", customer)]).0
}

#[test]
fn each_denial_is_in_the_audit_log_and_each_customer_gets_one_mail_over_all_instances() {
    machine::undisturbed(STANDSTILL, denials_of_two_instances);
}

fn denials_of_two_instances() {
    let redis = RedisServer::start();
    let mut instances: Vec<(Process, SocketAddr)> = (0..2)
        .map(|_| {
            let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
            let mut command = Process::example("events");
            command
                .env("LISTEN", address.to_string())
                .env("REDIS_URL", redis.url());
            (Process::start(command, "Try"), address)
        })
        .collect();
    let mut denied = 0;
    for customer in ["acme", "other"] {
        for at in 0..10 {
            denied += usize::from(status(instances[at % 2].1, customer) == 429);
        }
    }
    assert_eq!(denied, 10);
    // An instance writes all events before it ends.
    let ended = instances.iter_mut().map(|(process, _)| {
        assert!(process.interrupt().success());
        process.output()
    });
    let output = ended.collect::<Vec<_>>().join("\n");
    let lines = |start: &str| {
        output
            .lines()
            .filter(|line| line.starts_with(start))
            .count()
    };
    for customer in ["acme", "other"] {
        let key = format!(r#","key":"{customer}","policy":"requests","quota":"5/day","#);
        assert_eq!(output.matches(&key).count(), 1 + 5, "{output}");
        assert_eq!(lines(&format!("mail: dear {customer},")), 1, "{output}");
    }
    let events = |name: &str| output.matches(&format!(r#","event":"{name}","#)).count();
    assert_eq!(
        (events("near_limit"), events("denied"), lines("{")),
        (2, 10, 12),
        "{output}"
    );
}
