//! Simulates how processes share a server: `cargo xtask simulate`, how replicas lease units of a
//! limit: `cargo xtask simulate leases`, and how customers share one: `cargo xtask simulate fair`.
//!
//! The model has a server with a time for each call and for each key, lines with a delay and a
//! jitter, and processes with callers. Each process runs the pacer of the Redis store, the same
//! lines as in production. The run is deterministic: it has its own clock and seeded random
//! numbers, so each run gives the same figures.

use std::{env, process::ExitCode};

mod fair;
mod leases;
mod line;
#[allow(
    dead_code,
    reason = "the store asks the pacer more than the simulation"
)]
#[path = "../../../crates/tollgate/src/redis/dispatch/pacer.rs"]
mod pacer;
mod process;
mod random;
mod results;
mod scenarios;
mod time;
mod world;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            scenarios::print();
            ExitCode::SUCCESS
        }
        ["fair"] => {
            fair::print();
            ExitCode::SUCCESS
        }
        ["leases"] => run_leases(1_000_000),
        ["leases", count] if count.parse::<u64>().is_ok() => {
            run_leases(count.parse().unwrap_or_default())
        }
        _ => {
            eprintln!("Usage: cargo xtask simulate [leases [SCHEDULES] | fair]");
            ExitCode::FAILURE
        }
    }
}

/// Runs random schedules of leases. Fails when one of them exceeds a bound.
fn run_leases(count: u64) -> ExitCode {
    for (mistake, seed) in leases::mistakes(count.min(20_000)) {
        println!("mistake {mistake:?}: the first schedule that finds it is {seed:?}");
    }
    leases::print_efficiency();
    let (sum, exceeded) = leases::run(0..count);
    println!(
        "{count} schedules, {} units admitted, {} of them leased",
        sum.admitted, sum.leased
    );
    println!(
        "{} schedules above the bound {:?}",
        exceeded.len(),
        exceeded.iter().take(20).collect::<Vec<_>>()
    );
    if exceeded.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
