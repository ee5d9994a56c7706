//! One of several processes that spend one quota in PostgreSQL; see `tests/processes/postgres.rs`.
//!
//! Reads `URL` and `AMOUNT` (a burst, of which one unit comes back in a day) from its environment.
//! Prints `ready` when it is connected, a line for each unit that it was given, and `done` when
//! there are no more.

use std::{
    env,
    io::{self, Write},
    sync::Arc,
};

use tollgate::{Limiter, Policy, Quota};
use tollgate_test_support::patient_limiter;

const TASKS: u64 = 8;

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

#[tokio::main]
async fn main() {
    tollgate_postgres::register();
    let amount = variable("AMOUNT").parse().expect("AMOUNT is a number");
    let store = tollgate::connect(variable("URL")).await.expect("a store");
    let limiter = Arc::new(patient_limiter(
        store,
        Policy::token_bucket("shared", Quota::per_day(1).with_burst(amount)),
    ));
    println!("ready");
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| tokio::spawn(spend(Arc::clone(&limiter))))
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    println!("done");
    // The parent reads the output and then ends this process.
    std::future::pending::<()>().await;
}

async fn spend(limiter: Arc<Limiter>) {
    while limiter.check("hot").await.expect("a decision").is_allowed() {
        let mut output = io::stdout().lock();
        output
            .write_all(b"unit\n")
            .and_then(|()| output.flush())
            .expect("the parent reads");
    }
}
