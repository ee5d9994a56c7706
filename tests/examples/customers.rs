//! One of several replicas that share a limit, and whose customers have fair shares of it; see
//! `tests/processes/fair_shares.rs`.
//!
//! Reads `URL`, `AMOUNT` (per second), `REPLICA` (0 to 3), `FROM` (microseconds since the Unix
//! epoch, the same for all replicas) and `SECONDS` from its environment. Prints for each customer
//! how often it asked, and how often it was admitted, after the first [`WARM`].

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::{Instant, sleep_until};
use tollgate::{Cost, Costs, Customer, Limiter, Policy, Quota, RedisStore};
use tollgate_test_support::PATIENCE;

const REPLICAS: u64 = 4;

/// The time in which replicas come to know each other's customers.
const WARM: Duration = Duration::from_secs(4);

/// Light customers, each of one replica. They ask for half of the limit together.
const LIGHT: u64 = 20;

fn variable<T: std::str::FromStr>(name: &str) -> T {
    let value = env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{name} is {value}"))
}

/// Asks so often in a second until the end. Returns how often it asked and was admitted.
async fn ask(
    limiter: Limiter,
    customer: String,
    per_second: u64,
    begin: Instant,
    end: Instant,
) -> (String, u64, u64) {
    let costs = Costs::new(Cost::ONE).with_customer(Customer::new(&*customer));
    let (mut asked, mut admitted) = (0, 0);
    for at in 1.. {
        let due = begin + Duration::from_micros(at * 1_000_000 / per_second);
        if due >= end {
            break;
        }
        sleep_until(due).await;
        let check = limiter.check("all").cost(costs.clone());
        let is_allowed = check.await.expect("a decision").is_allowed();
        if due >= begin + WARM {
            asked += 1;
            admitted += u64::from(is_allowed);
        }
    }
    (customer, asked, admitted)
}

#[tokio::main]
async fn main() {
    let (amount, replica): (u64, u64) = (variable("AMOUNT"), variable("REPLICA"));
    let store = RedisStore::connect(variable::<String>("URL"))
        .await
        .expect("a store");
    let limiter = Limiter::builder(store)
        .policies(Policy::token_bucket("service", Quota::per_second(amount)))
        .deadline(PATIENCE)
        .fair_shares()
        .build();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time");
    let wait = Duration::from_micros(variable("FROM")).saturating_sub(now);
    let begin = Instant::now() + wait;
    let end = begin + WARM + Duration::from_secs(variable("SECONDS"));
    let light = (0..LIGHT).filter(|customer| customer % REPLICAS == replica);
    let mut customers: Vec<(String, u64)> = light
        .map(|customer| (format!("light-{customer}"), amount / 2 / LIGHT))
        .collect();
    // Each asks for twice the limit: one through all replicas, one through the first.
    customers.push(("everywhere".to_owned(), amount * 2 / REPLICAS));
    if replica == 0 {
        customers.push(("pinned".to_owned(), amount * 2));
    }
    let asks: Vec<_> = customers
        .into_iter()
        .map(|(customer, rate)| tokio::spawn(ask(limiter.clone(), customer, rate, begin, end)))
        .collect();
    for ask in asks {
        let (customer, asked, admitted) = ask.await.expect("a task");
        println!("customer {customer} {asked} {admitted}");
    }
    println!("done");
    // The parent reads the output and then ends this process.
    std::future::pending::<()>().await;
}
