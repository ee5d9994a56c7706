//! One of several processes that stand in the same queue; see `tests/queue.rs`.
//!
//! Reads `URL`, `AMOUNT` (per second), `BURST`, `TASKS` and `TURNS` (of each task) from its environment. Prints for each
//! turn when it was asked for and when it came, on the system's clock, and how far off it was when it was given out, all
//! in microseconds.

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate::{Limiter, Outage, Policy, Quota, RedisStore};

fn variable<T: std::str::FromStr>(name: &str) -> T {
    let value = env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
}

fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_micros()
}

#[tokio::main]
async fn main() {
    let quota = Quota::per_second(variable("AMOUNT")).with_burst(variable("BURST"));
    let store = RedisStore::connect(variable::<String>("URL")).await.expect("a store");
    let limiter = Limiter::builder(store)
        .policies(Policy::leaky_bucket("queue", quota))
        .on_outage(Outage::Closed)
        .deadline(Duration::from_secs(20))
        .build();
    let turns: u32 = variable("TURNS");
    let tasks: Vec<_> = (0..variable::<u32>("TASKS")).map(|_| tokio::spawn(stand(limiter.clone(), turns))).collect();
    for task in tasks {
        for (asked, came, delay) in task.await.expect("a task") {
            println!("turn {asked} {came} {delay}");
        }
    }
    println!("done");
    // The parent reads what is printed and then ends this process.
    std::future::pending::<()>().await;
}

async fn stand(limiter: Limiter, turns: u32) -> Vec<(u128, u128, u128)> {
    let mut times = Vec::new();
    for _ in 0..turns {
        let asked = now_us();
        let decision = limiter.until_ready("hot", Duration::from_secs(20)).await.expect("a decision");
        times.push((asked, now_us(), decision.delay().as_micros()));
        assert!(decision.is_allowed(), "the queue is long enough for all: {decision:?}");
    }
    times
}
