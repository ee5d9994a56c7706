//! The project's chores, run as `cargo xtask <task>`.
//!
//! Each task is a file of its own. A task prints what it runs, ends non-zero when anything failed, and says in
//! one sentence what to do about a machine that lacks something.

use std::{env, process::ExitCode};

mod bench;
mod circles;
mod failure;
mod faults;
mod fuzz;
mod lint;
mod need;
mod package;
mod plots;
mod servers;
mod tally;
mod test;
#[cfg(test)]
mod test_index;
mod valkey;
mod workspace;

use failure::Failure;
use workspace::Workspace;

const HELP: &str = "\
The project's chores.

Usage: cargo xtask <task> [arguments]

Tasks:
  test [arguments for cargo test]
        Runs every test: unit, doc, and integration against servers the tests
        start themselves. Installs redis-server first if neither it nor
        valkey-server is there; REDIS_SERVER may name a binary and wins.
        Repeats a part of them on valkey-server where it is there or can be
        installed; VALKEY_SERVER may name it. A loud line says when not.
        The last line is `N passed, N failed, N skipped`.
  bench [--quick] [--write] [SECTION…]
        Tollgate and its peers on the same work, with ratios and the project's
        targets beside them; --quick ends within two minutes. A full run writes
        docs/benchmarks.md.
  faults [--quick] [--write] [--soak] [--runs N] [--server redis8|valkey8] [ROW…]
        Raises the faults a limiter has to survive against servers of its own,
        and prints what each cost, with its target; --quick ends within three
        minutes. A full run writes docs/reliability.md. As root on Linux it
        raises silent peers, lost packets and partitions as well, in network
        namespaces of its own, with nft if that is there or can be installed.
        --server takes a newer server than the system's, unpacked from Debian's
        packages into the target directory. --soak is 20 minutes of load
        instead, --runs counts what breaks in so many runs.
  fuzz [--executions N] [--seed N] [TARGET…]
        Feeds the readers of strangers' words (forwarding headers, addresses,
        keys, replies, quotas) with made-up ones, five million each, and holds
        the outcome against a law. The tests run a short form.
  lint [--benches]
        Formatting, clippy, circles of imports, documentation, what the crates
        would publish, and the dependency rules of deny.toml. All of them run
        before it ends; --benches adds clippy on the benches and their peers.
  circles
        The circles of imports alone: which files of a crate import from each
        other, and which imports of the Redis store run upward.
  plots
        Draws the pictures in docs/plots again, from the functions that decide;
        the tests compare them.
  help  Prints this.";

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let task = arguments.next();
    let rest: Vec<String> = arguments.collect();
    let done = match task.as_deref() {
        Some("test") => test::run(&rest),
        Some("bench") => bench::run(&rest),
        Some("faults") => faults::run(&rest),
        Some("fuzz") => fuzz::run(&rest),
        Some("circles") => Workspace::load().and_then(|workspace| circles::check(&workspace)),
        Some("lint") => lint::run(&rest),
        Some("plots") => plots::run(&rest),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            Ok(())
        }
        Some(other) => Err(Failure::new(format!("there is no task {other:?}: `cargo xtask --help` lists them"))),
        None => Err(Failure::new("which task? `cargo xtask --help` lists them")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
