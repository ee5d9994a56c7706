//! Tries Tollgate with clients and proxies that were written elsewhere: Envoy, grpcio, openai,
//! anthropic, http-sfv, httpx, h2, curl, websockets.
//!
//! Run it as `cargo xtask foreign`, which installs the clients, see [`HELP`]. Each group starts its
//! servers on free ports of 127.0.0.1, and a script of `python/` that asks them. The script prints
//! a line for each case. A case that is not as expected fails the run, and so does a group that
//! cannot be carried out.

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

mod case;
mod clients;
mod envoy;
mod groups;
mod report;
mod servers;

use clients::Clients;
use groups::Group;
use report::Report;

const HELP: &str = "\
Usage: cargo xtask foreign [--quick] [--optional] [GROUP…]

  --quick     fewer uploads are denied
  --optional  without the clients, prints a loud line and succeeds

Groups:";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let (quick, names): (Vec<_>, Vec<_>) = words.iter().partition(|word| *word == "--quick");
    let find = |name: &&String| groups::ALL.iter().find(|group| group.name == **name);
    let chosen: Option<Vec<&Group>> = names.iter().map(find).collect();
    let Some(chosen) = chosen else {
        eprintln!("{HELP}");
        groups::ALL
            .iter()
            .for_each(|group| eprintln!("  {:<12}{}", group.name, group.about));
        return ExitCode::FAILURE;
    };
    let chosen = if chosen.is_empty() {
        groups::ALL.iter().collect()
    } else {
        chosen
    };
    match Clients::find() {
        Ok(clients) => run(&clients, &chosen, !quick.is_empty()),
        Err(reason) => {
            eprintln!("{reason}: run `cargo xtask foreign`, which installs the clients");
            ExitCode::FAILURE
        }
    }
}

fn run(clients: &Clients, groups: &[&Group], is_quick: bool) -> ExitCode {
    println!(
        "{}. {}\n",
        clients.versions().join(", "),
        tollgate_tests::machine::describe().join(", ")
    );
    let mut report = Report::default();
    for group in groups {
        let cases = panic::catch_unwind(AssertUnwindSafe(|| (group.run)(clients, is_quick)));
        println!("{}", report.add(group, cases.ok()));
    }
    println!("{}", report.tally());
    if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
