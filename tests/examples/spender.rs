//! One of several processes that spend from the same quotas; see `tests/processes/bound.rs`.
//!
//! Reads `URL`, `ALGORITHM`, `AMOUNT` (per second), `KEYS` (drawn by Zipf's law, 1 is one hot key)
//! and `SECONDS` from its environment. Prints the server's time around its work in microseconds,
//! then a line for each key it was admitted on.

use std::{collections::HashMap, env, time::Duration};

use tollgate::{Algorithm, Limiter, Policy, Quota, RedisStore};
use tollgate_test_support::patient_limiter;

const TASKS: u64 = 32;

fn variable<T: std::str::FromStr>(name: &str) -> T {
    let value = env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{name} is {value}"))
}

/// Asks on a connection that blocks: it has no timeout, and nothing else runs meanwhile.
fn server_time(client: &redis::Client) -> u64 {
    let mut connection = client.get_connection().expect("a server");
    let (seconds, micros): (u64, u64) =
        redis::cmd("TIME").query(&mut connection).expect("the time");
    seconds * 1_000_000 + micros
}

#[tokio::main]
async fn main() {
    let url: String = variable("URL");
    let quota = Quota::per_second(variable("AMOUNT"));
    let policy =
        Policy::try_new("shared", variable::<Algorithm>("ALGORITHM"), quota).expect("a policy");
    let (keys, seconds) = (variable::<u64>("KEYS"), variable::<u64>("SECONDS"));
    let client = redis::Client::open(url.as_str()).expect("a URL");
    let store = RedisStore::connect(url).await.expect("a store");
    let limiter = patient_limiter(store, policy);

    let began = server_time(&client);
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(spend(limiter.clone(), keys, task, end)))
        .collect();
    let mut admitted: HashMap<u64, u64> = HashMap::new();
    for task in tasks {
        for (key, count) in task.await.expect("a task") {
            *admitted.entry(key).or_default() += count;
        }
    }
    println!("time {began} {}", server_time(&client));
    for (key, count) in admitted {
        println!("key {key} {count}");
    }
    println!("done");
    // The parent reads the output and then ends this process.
    std::future::pending::<()>().await;
}

async fn spend(
    limiter: Limiter,
    keys: u64,
    seed: u64,
    end: tokio::time::Instant,
) -> HashMap<u64, u64> {
    let mut state = seed * 0x9e37_79b9 + u64::from(std::process::id());
    let mut admitted = HashMap::new();
    while tokio::time::Instant::now() < end {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let share = (state >> 11) as f64 / (1_u64 << 53) as f64;
        // Zipf with exponent 1: the rank grows exponentially with the share.
        let key = (keys as f64).powf(share) as u64;
        if limiter.check(key).await.expect("a decision").is_allowed() {
            *admitted.entry(key).or_default() += 1;
        }
    }
    admitted
}
