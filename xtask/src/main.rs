//! Runs the tasks of the project: `cargo xtask <task>`.
//!
//! Each task is a file of its own. A task prints the commands that it runs, and ends with an error
//! code when one failed. If the machine lacks a program, one sentence says what to do.

use std::{env, process::ExitCode};

mod bench;
mod browser;
mod failure;
mod faults;
mod foreign;
#[cfg(test)]
mod house;
mod lint;
mod lowest;
mod model;
mod need;
mod packed;
mod programs;
mod pypi;
mod servers;
mod tally;
mod test;
mod times;
mod versions;
mod workspace;

use failure::Failure;

const HELP: &str = "\
The tasks of the project.

Usage: cargo xtask <task> [arguments]

Tasks:
  test [--full] [--repeat N] [PROGRAM [TEST…]]
        Runs the tests of every promise: unit, doc, and integration tests,
        which start their own servers, three programs at a time. A line says when
        a program begins and ends. As root it installs redis-server and
        valkey-server where they are missing, else it says what to install;
        REDIS_SERVER and VALKEY_SERVER may name binaries. --full adds the tests
        of the tools and those that compile projects of their own, and makes
        streams of random steps up to ten times as long. PROGRAM runs one program
        alone (`store`), or those of a crate, and TEST some of its tests.
        The last line is `N passed, N failed, N skipped`.
  test --servers [--quick] [--optional] [SERVER…]
        Runs the laws, the agreement of the scripts and of permits, and the
        suite of stores on each version that README names: redis6, redis7,
        redict7, redis8, valkey8, valkey9. They come from PyPI and from
        Debian's packages, unpacked into the target directory. Prints the
        table of docs/redis.md. A server that cannot be had is named, and
        fails the run without --optional. --quick takes the oldest and the
        newest alone.
  bench [--quick] [SECTION…]
        Tollgate and its peers on the same work, with ratios, as
        docs/contributors/results/benchmarks.txt, and the project's targets on
        the standard error; --quick ends within four minutes. `instructions`
        needs valgrind, and VALGRIND may name a binary.
  browser [--write] [--optional]
        Drives the page of the playground in headless Chromium, with Playwright
        from npm. Installs chromium, node and npm by the package manager if they
        are not found; CHROMIUM may name a binary. --write copies the
        screenshots into docs. --optional prints a loud line and succeeds where
        a browser cannot be had.
  faults [--quick] [--soak] [--server NAME] [ROW…]
        Raises the faults that a limiter has to survive on servers of its own,
        and prints what each costs, with its target, as
        docs/contributors/results/faults.txt; --quick ends within three minutes.
        What may not happen on any machine fails the run.
        As root on Linux it also raises silent peers, lost packets and
        partitions, in network namespaces of its own, with nft if that is found
        or can be installed. --server runs on another server, one of those of
        `test --servers`. --soak is 20 minutes of load instead.
  foreign [--quick] [--optional] [GROUP…]
        Tries Tollgate with clients and proxies that were written elsewhere,
        from PyPI, and prints docs/contributors/results/foreign.txt. A case with
        another answer than the expected one fails the run. --quick ends within
        a minute. --optional prints a loud line and succeeds where the clients
        cannot be had. Linux only.
  lint [--benches]
        Formatting, clippy, the house (circles of imports, links and names of
        pages, metadata), documentation, the files that the core would publish,
        unused dependencies, and the rules of deny.toml. All of them run before
        it ends; --benches adds clippy on the benches and their peers.
  model [--long] [--mistakes] [--walks NUMBER] [ROW…]
        Explores protocols that give units away in every order of their messages
        and faults, at small sizes, and prints how many states each row has, as
        docs/contributors/results/model.txt. A violation fails the run. --long
        takes minutes and up to 10 GB of memory. --mistakes shows the steps to
        each seeded mistake; --walks takes random steps with all faults.
  help  Prints this.";

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let task = arguments.next();
    let rest: Vec<String> = arguments.collect();
    let done = match task.as_deref() {
        Some("test") if rest.first().is_some_and(|first| first == "--servers") => {
            versions::run(&rest[1..])
        }
        Some("test") => test::run(&rest),
        Some("bench") => bench::run(&rest),
        Some("browser") => browser::run(&rest),
        Some("faults") => faults::run(&rest),
        Some("foreign") => foreign::run(&rest),
        Some("lint") => lint::run(&rest),
        Some("model") => model::run(&rest),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            Ok(())
        }
        Some(other) => Err(Failure::new(format!(
            "there is no task {other:?}, see `cargo xtask --help`"
        ))),
        None => Err(Failure::new("name a task, see `cargo xtask --help`")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
