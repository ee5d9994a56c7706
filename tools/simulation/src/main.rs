//! Simulates how processes share a server: `cargo xtask simulate [--write]`, and how replicas lease units of a limit:
//! `cargo xtask simulate leases`. `cargo xtask simulate fair` simulates fair shares of one limit.
//!
//! The model has a server with a time for each call and for each key, lines with a delay and a jitter, and processes with
//! callers. Each process runs the controller of the Redis store, the same lines as in production. The run is
//! deterministic: it has its own clock and seeded random numbers, so each run gives the same figures.

use std::{env, fs, path::Path, process::ExitCode};

mod controller;
mod fair;
mod leases;
mod line;
#[allow(dead_code, reason = "the store asks the pacer more than the simulation")]
#[path = "../../../crates/tollgate/src/redis/dispatch/pacer.rs"]
mod pacer;
mod page;
mod process;
mod random;
mod results;
mod scenarios;
mod time;
mod world;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if let ["leases", ref rest @ ..] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return run_leases(rest);
    }
    if let ["fair"] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        print!("{}", fair::table());
        return ExitCode::SUCCESS;
    }
    let write = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--write"] => true,
        _ => {
            return usage();
        }
    };
    let mut parts = scenarios::all();
    parts.extend(leases::parts());
    let text = page::markdown(&parts);
    println!("{text}");
    if !write {
        return ExitCode::SUCCESS;
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contributors");
    let pictures = parts.iter().map(|part| (format!("plots/{}.svg", part.name), part.picture.svg()));
    for (file, content) in pictures.chain([("simulation.md".to_owned(), text)]) {
        if let Err(error) = fs::write(docs.join(&file), content) {
            eprintln!("docs/contributors/{file} cannot be written: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs random schedules of leases. Fails when one of them exceeds a bound.
fn run_leases(words: &[&str]) -> ExitCode {
    let count = match words {
        [] => Some(1_000_000),
        [count] => count.parse().ok(),
        _ => None,
    };
    let Some(count) = count else { return usage() };
    for (mistake, seed) in leases::mistakes(count.min(20_000)) {
        println!("mistake {mistake:?}: the first schedule that finds it is {seed:?}");
    }
    leases::print_efficiency();
    let (sum, exceeded) = leases::run(0..count);
    println!("{count} schedules, {} units admitted, {} of them leased", sum.admitted, sum.leased);
    println!("{} schedules above the bound {:?}", exceeded.len(), exceeded.iter().take(20).collect::<Vec<_>>());
    if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!(
        "Usage: cargo xtask simulate [--write]\n       cargo xtask simulate leases [SCHEDULES]\n       cargo xtask simulate fair\n\n  \
         --write  writes docs/contributors/simulation.md and its pictures\n  \
         leases   runs random schedules of leases, a million by default\n  \
         fair     simulates fair shares of one limit, and prints the table of docs/contributors/fair_shares.md"
    );
    ExitCode::FAILURE
}
