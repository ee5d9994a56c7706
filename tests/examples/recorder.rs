//! One of several processes that spend from the same quotas and print their decisions; see
//! `tests/processes/linear.rs`.
//!
//! Reads `URL` and `POLICIES` from its environment, says `ready`, waits for the key `go`, and
//! prints for each check the server's time in microseconds, the key, the cost and the decision.

use std::{env, time::Duration};

use tollgate::{Cost, Limiter, RedisStore, testing};
use tollgate_test_support::{described, patient_limiter, recorded_policies as policies};

/// The tasks of this process, each with its share of the checks.
const TASKS: u64 = 16;

/// Few keys, so that the processes compete for them.
const KEYS: u64 = 4;

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

#[tokio::main]
async fn main() {
    let url = variable("URL");
    let client = redis::Client::open(url.as_str()).expect("a URL");
    // A cached denial would be decided without the server.
    let store = RedisStore::builder(url)
        .deny_cache_cap(Duration::ZERO)
        .connect()
        .await
        .expect("a store");
    let limiter = patient_limiter(store, policies::named(&variable("POLICIES")));
    println!("ready");
    // One that blocks: it has no timeout, and nothing else runs meanwhile.
    let mut connection = client.get_connection().expect("a server");
    while !redis::cmd("EXISTS")
        .arg("go")
        .query::<bool>(&mut connection)
        .expect("an answer")
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(spend(limiter.clone(), task)))
        .collect();
    for task in tasks {
        for line in task.await.expect("a task") {
            println!("decided {line}");
        }
    }
    println!("done");
    // The parent reads the output and then ends this process.
    std::future::pending::<()>().await;
}

async fn spend(limiter: Limiter, task: u64) -> Vec<String> {
    let mut state = task * 0x9e37_79b9 + u64::from(std::process::id());
    let mut lines = Vec::new();
    for _ in 0..policies::checks() / TASKS {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (key, dice) = (state >> 40 & (KEYS - 1), state >> 50 & 0xf);
        // Mostly one unit, some peeks, and costs that exceed a small rest.
        let cost = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 2, 2, 3, 5][dice as usize];
        let decision = limiter
            .check(key)
            .cost(Cost::new(cost))
            .await
            .expect("a decision");
        lines.push(format!(
            "{} {key} {cost} {}",
            testing::at_us(&decision),
            described(&decision)
        ));
        if dice == 3 {
            // Units accrue meanwhile.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    lines
}
