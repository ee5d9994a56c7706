//! The example of priorities: two instances that share one limit.

use std::{net::SocketAddr, time::Instant};

use tollgate_tests::{Process, RedisServer, machine, ports};

use crate::{STANDSTILL, http};

#[test]
fn reports_of_two_instances_leave_the_last_units_to_orders() {
    machine::undisturbed(STANDSTILL, reports_and_orders);
}

fn reports_and_orders() {
    let redis = RedisServer::start();
    let instances: Vec<(Process, SocketAddr)> = (0..2)
        .map(|_| {
            let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
            let mut command = Process::example("priorities");
            command
                .env("LISTEN", address.to_string())
                .env("REDIS_URL", redis.url());
            (Process::start(command, "Try"), address)
        })
        .collect();
    let began = Instant::now();
    let passed = |path: &str, requests: usize| {
        (0..requests)
            .filter(|at| http::send(instances[at % 2].1, "GET", path, &[]).0 == 200)
            .count()
    };
    // All exports of one customer, through both instances, leave some to another one.
    let export = |at: usize, customer: &str| {
        let fields = [("x-api-key", customer)];
        http::send(instances[at % 2].1, "GET", "/exports", &fields).0
    };
    let exported = (0..40).filter(|&at| export(at, "heavy") == 200).count();
    assert!((1..20).contains(&exported), "{exported} exports");
    assert_eq!(export(0, "light"), 200);
    let reports = passed("/reports", 20);
    let orders = passed("/orders", 10);
    // One unit accrues in 6 s.
    let accrued = began.elapsed().as_secs() as usize / 6 + 1;
    assert!((6..=6 + accrued).contains(&reports), "{reports} reports");
    assert!((4..=4 + accrued).contains(&orders), "{orders} orders");
    assert!(
        reports + orders <= 10 + accrued,
        "{reports} reports and {orders} orders"
    );
    for (mut process, _) in instances {
        assert!(process.interrupt().success());
    }
}
