//! Tries Tollgate with clients and proxies that were written elsewhere: Envoy, grpcio, openai,
//! anthropic, http-sfv, httpx, h2, curl, websockets.
//!
//! Run it as `cargo xtask foreign`, which installs the clients, see [`HELP`]. Each group starts its
//! servers on free ports of 127.0.0.1, and scripts of `python/` that ask them. A script prints a
//! line of the table for each row. A case that is not as expected fails the run, and so does a group
//! that cannot be carried out.

use std::{
    env,
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
};

mod clients;
mod envoy;
mod groups;
mod servers;

use clients::Clients;
use groups::Group;

const HELP: &str = "\
Usage: cargo xtask foreign [--quick] [--optional] [GROUP…]

  --quick     fewer uploads are denied
  --optional  without the clients, prints a loud line and succeeds

Groups:";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let (quick, names): (Vec<_>, Vec<_>) = words.iter().partition(|word| *word == "--quick");
    let find = |name: &&String| groups::ALL.iter().find(|group| group.name == **name);
    let Some(mut chosen) = names.iter().map(find).collect::<Option<Vec<_>>>() else {
        eprintln!("{HELP}");
        for group in groups::ALL {
            eprintln!("  {:<12}{}", group.name, group.about);
        }
        return ExitCode::FAILURE;
    };
    if chosen.is_empty() {
        chosen.extend(groups::ALL);
    }
    match Clients::find() {
        Ok(clients) => run(&clients, &chosen, !quick.is_empty()),
        Err(reason) => {
            eprintln!("{reason}: run `cargo xtask foreign`, which installs the clients");
            ExitCode::FAILURE
        }
    }
}

fn run(clients: &Clients, groups: &[&Group], is_quick: bool) -> ExitCode {
    println!("{}", tollgate_tests::machine::describe().join(", "));
    let mut failed = Vec::new();
    for Group {
        name,
        title,
        about,
        run,
    } in groups
    {
        println!("\n## {title}\n\n{about}\n\n| row | client | cases passed | | found |");
        if panic::catch_unwind(AssertUnwindSafe(|| run(clients, is_quick))).is_err() {
            println!("**Not carried out, or failed.**");
            failed.push(*name);
        }
    }
    println!(
        "\n{} groups, {} failed: {failed:?}",
        groups.len(),
        failed.len()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
