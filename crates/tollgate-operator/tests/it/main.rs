//! An operator beside services, on Redis and PostgreSQL. The command and the console have tests of their own.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod fresh;
mod kinds;

use std::time::Duration;

use tollgate_operator::Operator;

/// The time for which a test waits on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

fn operator(url: &str) -> Operator {
    let operator = Operator::builder(url).timeout(PATIENCE).shows_keys(true);
    operator.build().unwrap()
}
