//! One of several processes that wait in the same queue; see `tests/processes/queue.rs`.
//!
//! Reads `URL`, `AMOUNT` (per second), `BURST`, `TASKS` and `TURNS` (of each task) from its
//! environment. Prints for each turn the times of the request and of the answer on the system's
//! clock, and the delay of the decision, in microseconds.

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate::{Limiter, Policy, Quota, RedisStore};
use tollgate_test_support::patient_limiter;

fn variable<T: std::str::FromStr>(name: &str) -> T {
    let value = env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{name} is {value}"))
}

fn now_us() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time after 1970")
        .as_micros()
}

#[tokio::main]
async fn main() {
    let quota = Quota::per_second(variable("AMOUNT")).with_burst(variable("BURST"));
    let store = RedisStore::connect(variable::<String>("URL"))
        .await
        .expect("a store");
    let limiter = patient_limiter(store, Policy::leaky_bucket("queue", quota));
    let turns: u32 = variable("TURNS");
    let tasks: Vec<_> = (0..variable::<u32>("TASKS"))
        .map(|_| tokio::spawn(wait_in_queue(limiter.clone(), turns)))
        .collect();
    for task in tasks {
        for (asked, came, delay) in task.await.expect("a task") {
            println!("turn {asked} {came} {delay}");
        }
    }
    println!("done");
    // The parent reads the output and then ends this process.
    std::future::pending::<()>().await;
}

async fn wait_in_queue(limiter: Limiter, turns: u32) -> Vec<(u128, u128, u128)> {
    let mut times = Vec::new();
    for _ in 0..turns {
        let asked = now_us();
        let decision = limiter
            .check("hot")
            .wait(Duration::from_secs(20))
            .await
            .expect("a decision");
        times.push((asked, now_us(), decision.delay().as_micros()));
        assert!(
            decision.is_allowed(),
            "the queue is long enough for all: {decision:?}"
        );
    }
    times
}
