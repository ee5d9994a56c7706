//! Tries Tollgate with clients and proxies that were written elsewhere: Envoy, grpcio, openai, anthropic, http-sfv, httpx,
//! h2, curl, websockets.
//!
//! Run it as `cargo xtask foreign`, which installs the clients, see [`HELP`]. Each group starts its servers on free
//! ports of
//! 127.0.0.1, and a script of `python/` that asks them. The script prints a line for each case. A case that is not as
//! expected fails the run, and so does a group that cannot be carried out.

use std::{
    env, fs,
    panic::{self, AssertUnwindSafe},
    path::Path,
    process::ExitCode,
};

mod case;
mod clients;
mod envoy;
mod groups;
mod options;
mod report;
mod servers;

use clients::Clients;
use options::{HELP, Options};
use report::Report;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    // The group of the replicas starts this program again, as the replica.
    if let [servers::replica::PART, url] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        servers::replica::serve(url);
        return ExitCode::SUCCESS;
    }
    let Some(options) = Options::parse(&words) else {
        eprintln!("{HELP}");
        groups::ALL.iter().for_each(|group| eprintln!("  {:<12}{}", group.name, group.about));
        return ExitCode::FAILURE;
    };
    match Clients::find() {
        Ok(clients) => run(&clients, &options),
        Err(reason) => {
            eprintln!("{reason}: run `cargo xtask foreign`, which installs the clients");
            ExitCode::FAILURE
        }
    }
}

fn run(clients: &Clients, options: &Options) -> ExitCode {
    let mut report = Report::new(options.is_quick);
    for group in &options.groups {
        let cases = panic::catch_unwind(AssertUnwindSafe(|| (group.run)(clients, options.is_quick)));
        report.add(group, cases.ok());
    }
    println!("\n{}", report.tally());
    if options.is_written {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contributors/foreign.md");
        match fs::write(&page, report.markdown(&clients.versions())) {
            Ok(()) => println!("written: {}", page.display()),
            Err(error) => {
                eprintln!("{} cannot be written: {error}", page.display());
                return ExitCode::FAILURE;
            }
        }
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
