//! The example of enforcement: two instances that are turned up together.

use std::{net::SocketAddr, time::Duration};

use tollgate_tests::{Process, RedisServer, machine, ports, wait};

use crate::{STANDSTILL, http};

const TENANTS: usize = 40;
const PATIENCE: Duration = Duration::from_secs(60);

fn send(address: SocketAddr, method: &str, path: &str, tenant: usize) -> (u16, String) {
    http::send(
        address,
        method,
        path,
        &[("X-Tenant", &format!("tenant-{tenant}"))],
    )
}

fn denied(address: SocketAddr) -> Vec<usize> {
    (0..TENANTS)
        .filter(|tenant| send(address, "GET", "/", *tenant).0 == 429)
        .collect()
}

/// Returns what is published.
fn published(redis: &RedisServer) -> Vec<String> {
    let texts = redis.command(&["ZRANGE", "tollgate:{replicas}:limits", "0", "-1"]);
    texts
        .items()
        .iter()
        .map(|text| text.text().to_owned())
        .collect()
}

#[test]
fn two_instances_deny_the_same_tenants_at_each_share() {
    machine::undisturbed(STANDSTILL, shares_of_two_instances);
}

fn shares_of_two_instances() {
    let redis = RedisServer::start();
    let instances: Vec<(Process, SocketAddr)> = (0..2)
        .map(|_| {
            let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
            let mut command = Process::example("enforcement");
            command
                .env("LISTEN", address.to_string())
                .env("REDIS_URL", redis.url());
            (Process::start(command, "Try"), address)
        })
        .collect();
    let [first, second] = [instances[0].1, instances[1].1];
    assert_eq!(
        (denied(first), denied(second)),
        (vec![], vec![]),
        "in force for none"
    );
    let mut before = Vec::new();
    for (share, expected) in [(50, 8..=32), (100, TENANTS..=TENANTS)] {
        for address in [first, second] {
            assert_eq!(
                send(address, "PUT", &format!("/enforcement/{share}"), 0).0,
                200
            );
        }
        let now = denied(first);
        assert_eq!(now, denied(second), "{share} %");
        assert!(
            expected.contains(&now.len()),
            "{} tenants at {share} %",
            now.len()
        );
        assert!(before.iter().all(|tenant| now.contains(tenant)));
        before = now;
    }
    assert_eq!(send(first, "PUT", "/enforcement/101", 0).0, 400);

    // Operators see the limit, and win over the code, on both instances.
    wait::until("the limit", PATIENCE, || {
        published(&redis) == ["tenant=1/day, fixed_window; enforced 100%; limiter tenant"]
    });
    redis.command(&["HSET", "tollgate:{replicas}:shares", "tenant", "0%"]);
    wait::until("the share of the operator", PATIENCE, || {
        denied(first).is_empty() && denied(second).is_empty()
    });
    assert_eq!(send(first, "PUT", "/enforcement/100", 0).0, 200);
    assert!(denied(first).is_empty(), "the code waits");
    assert!(
        send(first, "GET", "/rate_limit", 1)
            .1
            .ends_with(r#"{"resources":{}}"#),
        "not enforced for the tenant"
    );
    redis.command(&["HDEL", "tollgate:{replicas}:shares", "tenant"]);
    wait::until("the share of the code", PATIENCE, || {
        denied(first).len() == TENANTS
    });
    let state = send(first, "GET", "/rate_limit", 1).1;
    assert!(
        state.contains(r#"{"resources":{"tenant":{"limit":1,"used":1,"remaining":0,"reset":"#),
        "{state}"
    );
    for (mut process, _) in instances {
        assert!(process.interrupt().success());
    }
}
